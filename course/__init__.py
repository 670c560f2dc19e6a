"""The course's sources and the builder that turns them into notebooks and quiz banks."""

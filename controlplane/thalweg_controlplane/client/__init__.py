"""A client of the API server for tests, benchmarks and ``thalweg up``, and objects to create with it."""

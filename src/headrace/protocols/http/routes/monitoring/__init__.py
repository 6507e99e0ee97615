"""Routes for those who watch: health, metrics, servers, pipelines."""

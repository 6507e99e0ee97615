"""What a broker tells of itself: descriptions of topics and groups, histograms, reports of pipelines."""

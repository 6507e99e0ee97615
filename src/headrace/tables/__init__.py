"""Topics as tables: the files of a topic's archive and the tail from the broker, for engines that read Parquet."""

"""What becomes of a published batch: deduplication, routing, offsets, receipts."""

"""What differs between the two worlds: HTTP, time and concurrency, blocking or not."""

"""Parts of GPUs: jobs that want less than a GPU beside each other; nothing else belongs here."""

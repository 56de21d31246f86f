"""Which jobs share GPUs: buckets, matchings and groups; where they run does not belong here."""

"""Any encoder, SQuAD: answers, n-best, exact match and F1."""

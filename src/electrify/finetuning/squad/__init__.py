"""Fine-tune any encoder on SQuAD: answers, n-best lists, exact match and F1."""

"""Share and serve exported models: sentence vectors, ONNX, cards with scores, the Hub."""

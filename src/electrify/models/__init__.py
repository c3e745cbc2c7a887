"""Generator and discriminator pairs of any architecture, and what they are trained to do."""

"""Readers that turn raw sources into documents."""

"""The laboratory: speculative methods to study and measure, as a plug-in of the engine."""

"""The compatibility matrix: cases run natively and through Outboard, and their outputs compared."""

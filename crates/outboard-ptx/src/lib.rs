//! PTX lexer, parser and verifier.

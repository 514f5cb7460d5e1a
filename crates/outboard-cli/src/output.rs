//! What commands print.

use std::io::{self, Write};

use miette::{IntoDiagnostic, Result};

/// Writes to standard output; that nobody reads any more is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).into_diagnostic(),
        _ => Ok(()),
    }
}

//! What commands print.

use std::io::{self, Write};

use miette::{IntoDiagnostic, Result};

/// Writes to standard output; a closed pipe is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    print_bytes(text.as_bytes())
}

/// The same for what need not be text.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<()> {
    print_to_reader(bytes).map(drop)
}

/// The same; returns whether the output is still read.
pub(crate) fn print_to_reader(bytes: &[u8]) -> Result<bool> {
    let mut output = io::stdout();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).into_diagnostic(),
    }
}

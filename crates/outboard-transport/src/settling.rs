//! What two sides say to each other, over the connection that they have, of whether its bytes move
//! to something faster: adapters, or memory that both see.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::blocking::{read_exact_until, write_all};
use crate::stream::Stream;

/// What the client begins with if it stays; anything else says what it wishes.
pub(crate) const STAYS: u8 = 0;
/// What the server answers with.
pub(crate) const REFUSED: u8 = 0;
pub(crate) const READY: u8 = 1;
/// The client's last word.
pub(crate) const MOVED: u8 = 1;

/// The longest that a server says of why it refuses, in bytes.
const LONGEST: usize = 1024;

/// What became of a connection.
#[derive(Debug)]
pub enum Outcome {
    /// Its bytes go another way from here on.
    Moved(Arc<dyn Stream>),
    /// They go on as before: why, if it was tried.
    Stays(Option<io::Error>),
}

/// The client stays with the connection that it has.
///
/// # Errors
/// The connection's.
pub fn stay(met: &dyn Stream) -> io::Result<()> {
    write_all(met, &[STAYS])
}

pub(crate) fn read_byte(met: &dyn Stream, deadline: Instant) -> io::Result<u8> {
    let mut byte = [0];
    read_exact_until(met, &mut byte, deadline)?;
    Ok(byte[0])
}

/// Whether the server is ready; or why it is not.
pub(crate) fn read_answer(
    met: &dyn Stream,
    deadline: Instant,
) -> io::Result<Result<(), io::Error>> {
    match read_byte(met, deadline)? {
        READY => Ok(Ok(())),
        REFUSED => {
            let mut length = [0; 2];
            read_exact_until(met, &mut length, deadline)?;
            let length = usize::from(u16::from_le_bytes(length));
            if length > LONGEST {
                return Err(wrong("the server's reason is too long"));
            }
            let mut said = vec![0; length];
            read_exact_until(met, &mut said, deadline)?;
            let said = format!("the server says: {}", String::from_utf8_lossy(&said));
            Ok(Err(io::Error::other(said)))
        }
        _ => Err(wrong("the server does not say whether it is ready")),
    }
}

pub(crate) fn refusal(why: &io::Error) -> Vec<u8> {
    let said = why.to_string();
    let said = &said.as_bytes()[..said.len().min(LONGEST)];
    [&[REFUSED][..], &(said.len() as u16).to_le_bytes(), said].concat()
}

pub(crate) fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

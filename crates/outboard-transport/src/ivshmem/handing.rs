//! How client and server come to a slot: over the connection that they have, which stays open.
//! Either of them may find that it cannot be; then they go on over that connection.
//!
//! | client | server |
//! |---|---|
//! | which slots are free on its side; or that it stays | |
//! | | the slot, in which it has written a number; or why not |
//! | that number; and the one that it has written there | |
//! | | that it reads that one; or that it does not |

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::part::{By, Part, Trial};
use super::stream::RegionStream;
use crate::blocking::{read_exact_until, write_all};
use crate::random::random;
use crate::rings::End;
use crate::settling::{Outcome, READY, STAYS, read_answer, read_byte, refusal, stay, wrong};
use crate::stream::Stream;

/// What the client begins with if it does not stay.
const WISHES: u8 = 1;

/// Moves the bytes of a connection into the part, if it can be: the client's side.
///
/// # Errors
/// If `met` fails, which is useless then: [`io::ErrorKind::TimedOut`] after the deadline,
/// [`io::ErrorKind::InvalidData`] if the server says what makes no sense.
pub fn move_to(met: &Arc<dyn Stream>, part: &Arc<Part>, deadline: Instant) -> io::Result<Outcome> {
    let free = part.free();
    if free == 0 {
        stay(&**met)?;
        let taken = "the session has no further room in the shared memory";
        return Ok(Outcome::Stays(Some(io::Error::other(taken))));
    }
    write_all(&**met, &[&[WISHES][..], &free.to_le_bytes()].concat())?;
    if let Err(why) = read_answer(&**met, deadline)? {
        return Ok(Outcome::Stays(Some(why)));
    }
    let number = read_byte(&**met, deadline)?;
    let only = 1_u32.checked_shl(number.into()).unwrap_or(0) & free;
    let slot = part.take(only).ok_or_else(|| wrong("the server names a slot that is not free"))?;
    let own: Trial = random()?;
    slot.write(By::Client, own);
    write_all(&**met, &[slot.read(By::Server), own].concat())?;
    match read_answer(&**met, deadline)? {
        Ok(()) => {
            Ok(Outcome::Moved(Arc::new(RegionStream::new(slot, End::Client, Arc::clone(met))?)))
        }
        Err(why) => Ok(Outcome::Stays(Some(why))),
    }
}

/// Does what the client wishes, if it can be: the server's side.
///
/// # Errors
/// If `met` fails, as for [`move_to`].
pub fn take_up(met: &Arc<dyn Stream>, part: &Arc<Part>, deadline: Instant) -> io::Result<Outcome> {
    match read_byte(&**met, deadline)? {
        STAYS => return Ok(Outcome::Stays(None)),
        WISHES => {}
        _ => return Err(wrong("the client does not say whether it moves")),
    }
    let mut free = [0; 4];
    read_exact_until(&**met, &mut free, deadline)?;
    let Some(slot) = part.take(u32::from_le_bytes(free)) else {
        let why = io::Error::other("the session has no further room in the shared memory");
        write_all(&**met, &refusal(&why))?;
        return Ok(Outcome::Stays(Some(why)));
    };
    let own: Trial = random()?;
    slot.clear();
    slot.write(By::Server, own);
    write_all(&**met, &[READY, slot.number() as u8])?;
    let (mut seen, mut told) = (Trial::default(), Trial::default());
    read_exact_until(&**met, &mut seen, deadline)?;
    read_exact_until(&**met, &mut told, deadline)?;
    if seen != own || slot.read(By::Client) != told {
        let why = io::Error::other("client and server do not see the same memory");
        write_all(&**met, &refusal(&why))?;
        return Ok(Outcome::Stays(Some(why)));
    }
    let stream = RegionStream::new(slot, End::Server, Arc::clone(met))?;
    write_all(&**met, &[READY])?;
    Ok(Outcome::Moved(Arc::new(stream)))
}

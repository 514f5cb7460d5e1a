//! The addresses that a server may give out to this process, and those that it does.

use std::collections::BTreeMap;

use outboard_front::backend::ServerId;
use outboard_ranges::{Mapping, own_mappings};
use outboard_wire::DecodeError;
use outboard_wire::handshake::arena::{ARENA, Arena};
use outboard_wire::handshake::windows::WINDOWS;
use outboard_wire::handshake::{HandshakeError, Welcome};
use outboard_wire::window::Window;
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use crate::link::ConnectError;

/// The windows in which this process has nothing, in their order: a server's workers that wait for
/// clients have the first ones. `None` if the system does not say what the process has.
pub(crate) fn acceptable() -> Option<Vec<Window>> {
    Some(free(own_mappings().ok()?))
}

/// A process has fewer windows than servers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooFew {
    pub(crate) servers: usize,
    pub(crate) windows: usize,
}

/// The windows of a process that has sessions with several servers.
struct Dealing {
    process: u32,
    /// Those in which the process had nothing when it began to connect.
    all: Vec<Window>,
    /// Those that sessions have, by their server's place.
    taken: BTreeMap<usize, Window>,
}

static DEALING: Mutex<Option<Dealing>> = Mutex::new(None);

impl Dealing {
    /// This process's.
    fn of_process() -> MappedMutexGuard<'static, Dealing> {
        let process = std::process::id();
        MutexGuard::map(DEALING.lock(), |dealing| {
            // A forked child has no sessions.
            match dealing {
                Some(of) if of.process == process => {}
                _ => {
                    let all = acceptable().unwrap_or_default();
                    *dealing = Some(Dealing { process, all, taken: BTreeMap::new() });
                }
            }
            dealing.as_mut().expect("it has just been made")
        })
    }

    /// Those that no session of another server has. The server's share comes first: a server that
    /// has no worker waiting in any of them takes the first, and so none that another server takes.
    fn offer(&self, server: ServerId, servers: usize) -> Result<Vec<Window>, TooFew> {
        let Dealing { all, .. } = self;
        if all.len() < servers {
            return Err(TooFew { servers, windows: all.len() });
        }
        let (place, is_free) = (server.place(), |window: &Window| !self.is_taken(server, *window));
        let is_own = |place_of: usize| place_of % servers == place;
        let (own, others): (Vec<_>, Vec<_>) =
            all.iter().enumerate().partition(|(place_of, _)| is_own(*place_of));
        Ok(own.into_iter().chain(others).map(|(_, window)| *window).filter(is_free).collect())
    }

    fn is_taken(&self, server: ServerId, window: Window) -> bool {
        self.taken.iter().any(|(place, taken)| *place != server.place() && *taken == window)
    }

    /// Unless the session of another server has it.
    fn take(&mut self, server: ServerId, window: Window) -> bool {
        let is_free = !self.is_taken(server, window);
        if is_free {
            self.taken.insert(server.place(), window);
        }
        is_free
    }
}

/// What a server is offered: any window that no session of another server has. All servers are
/// asked at once, so two may choose the same one; the second session to come cannot
/// [take](take) it.
pub(crate) fn offer(server: ServerId, servers: usize) -> Result<Option<Vec<Window>>, TooFew> {
    let Some(free) = acceptable().filter(|_| servers > 1) else { return Ok(acceptable()) };
    let mut offer = Dealing::of_process().offer(server, servers)?;
    offer.retain(|window| free.contains(window));
    Ok(Some(offer))
}

/// The server's session has this window, unless that of another server has it.
pub(crate) fn take(server: ServerId, window: Window) -> bool {
    Dealing::of_process().take(server, window)
}

/// A window that is taken for the server before it is asked, so that no other one's session can.
pub(crate) fn reserve(server: ServerId, servers: usize) -> Result<Option<Vec<Window>>, TooFew> {
    let Some(free) = acceptable() else { return Ok(None) };
    let mut dealing = Dealing::of_process();
    let offer = dealing.offer(server, servers)?;
    let window = offer.into_iter().find(|window| free.contains(window));
    let window = window.ok_or(TooFew { servers, windows: dealing.all.len() })?;
    dealing.take(server, window);
    Ok(Some(vec![window]))
}

fn free(mapped: impl Iterator<Item = Mapping>) -> Vec<Window> {
    let mut free: Vec<Window> = Window::all().collect();
    for Mapping { range: mapping, .. } in mapped {
        free.retain(|window| {
            let range = window.range();
            mapping.end <= range.start || range.end <= mapping.start
        });
    }
    free
}

/// A welcome that cannot be read.
fn malformed(address: &str, error: DecodeError) -> ConnectError {
    ConnectError::Handshake { address: address.to_owned(), error: HandshakeError::Malformed(error) }
}

/// The window that a welcome grants. Addresses that the process has not accepted could be its own.
pub(crate) fn granted(
    welcome: &Welcome,
    accepted: Option<&[Window]>,
    address: &str,
) -> Result<Option<Window>, ConnectError> {
    let malformed = |error| malformed(address, error);
    let window: Option<Window> = welcome.more.get(WINDOWS).map_err(malformed)?;
    match (window, accepted) {
        (Some(window), Some(accepted)) if !accepted.contains(&window) => {
            let what = "window of addresses that was not accepted";
            Err(malformed(DecodeError::Invalid { what, value: window.range().start }))
        }
        // A client that names no windows accepts any; Outboard's servers grant it none.
        (_, None) => Ok(None),
        (window, Some(_)) => Ok(window),
    }
}

/// The part of the window that this process cuts, if there is one.
pub(crate) fn arena(
    welcome: &Welcome,
    window: Option<Window>,
    address: &str,
) -> Result<Option<Arena>, ConnectError> {
    let malformed = |error| malformed(address, error);
    let arena: Option<Arena> = welcome.more.get(ARENA).map_err(malformed)?;
    match (arena, window) {
        (Some(arena), Some(window)) if !window.contains(arena.address, arena.bytes) => {
            let what = "arena that is not in the session's window";
            Err(malformed(DecodeError::Invalid { what, value: arena.address }))
        }
        // Addresses that are not kept for the session are the driver's to choose.
        (_, None) => Ok(None),
        (arena, Some(_)) => Ok(arena),
    }
}

#[cfg(test)]
mod tests {
    use outboard_ranges::mappings;
    use outboard_wire::handshake::{Extensions, VERSION};

    use super::*;

    fn numbers(maps: &str) -> Vec<u32> {
        free(mappings(maps.as_bytes())).iter().filter_map(Window::number).collect()
    }

    #[test]
    fn windows_in_which_anything_is_are_left_out() {
        assert_eq!(numbers("").len() as u32, Window::COUNT);
        let maps = "2fffffff0000-300000000000 rw-p 00000000 00:00 0 \n\
                    31fffffff000-320000001000 rw-p 00000000 00:00 0 \n\
                    600000000000-640000000000 ---p 00000000 00:00 0  [allocator of a sanitizer]\n\
                    555555554000-555555560000 r-xp 00000000 00:00 0  /a/program\n\
                    7c0000000000-7c0000001000 rw-p 00000000 00:00 0 \n\
                    7fff181d4000-7fff181f5000 rw-p 00000000 00:00 0  [stack]\n\
                    ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n";
        let wanted: Vec<u32> =
            (2..Window::COUNT).filter(|number| ![22, 23].contains(number)).collect();
        assert_eq!(numbers(maps), wanted);
        assert!(numbers("100000000000-7fffffffffff ---p 00000000 00:00 0 \n").is_empty());
    }

    #[test]
    fn no_window_is_where_this_process_has_its_program() {
        let accepted = acceptable().unwrap();
        let own = windows_in_which_anything_is_are_left_out as *const () as u64;
        assert!(!accepted.is_empty() && accepted.iter().all(|window| !window.contains(own, 1)));
    }

    fn dealing() -> Dealing {
        // The program has something in one of them.
        let all: Vec<Window> = Window::all().filter(|one| one.number() != Some(18)).collect();
        Dealing { process: 1, all, taken: BTreeMap::new() }
    }

    fn server(place: usize) -> ServerId {
        ServerId::new(place).expect("a list may have so many")
    }

    #[test]
    fn servers_without_waiting_workers_take_different_windows() {
        let dealing = dealing();
        for servers in 2..=dealing.all.len() {
            let offers: Vec<Vec<Window>> =
                (0..servers).map(|place| dealing.offer(server(place), servers).unwrap()).collect();
            let mut first: Vec<_> = offers.iter().map(|offer| offer[0].range().start).collect();
            assert_eq!(first[0], dealing.all[0].range().start);
            first.sort_unstable();
            first.dedup();
            assert_eq!(first.len(), servers, "no two begin with the same");
            assert!(offers.iter().all(|offer| offer.len() == dealing.all.len()), "{servers}");
        }
        let too_few = TooFew { servers: 36, windows: 35 };
        assert_eq!(dealing.offer(server(0), 36), Err(too_few));
    }

    #[test]
    fn no_two_sessions_have_the_same_window() {
        let mut dealing = dealing();
        let window = dealing.all[5];
        assert!(dealing.take(server(0), window) && dealing.take(server(0), window));
        assert!(!dealing.take(server(1), window));
        assert!(!dealing.offer(server(1), 2).unwrap().contains(&window));
        // Its own server may have it again, as after a session that came to nothing.
        assert!(dealing.offer(server(0), 2).unwrap().contains(&window));
        let other = dealing.all[6];
        assert!(dealing.take(server(0), other) && dealing.take(server(1), window));
    }

    #[test]
    fn as_many_servers_as_windows_all_find_one() {
        let mut dealing = dealing();
        let servers = dealing.all.len();
        // Each has taken one of another's share.
        for place in (0..servers).rev() {
            let window = *dealing.offer(server(place), servers).unwrap().last().unwrap();
            assert!(dealing.take(server(place), window), "{place}");
        }
    }

    #[test]
    fn only_what_was_accepted_is_granted() {
        let welcome = |window: Option<Window>| {
            let mut more = Extensions::default();
            if let Some(window) = window {
                more.set(WINDOWS, &window);
            }
            let (software, snapshot) = (String::new(), Vec::new());
            Welcome {
                version: VERSION,
                software,
                session: 1,
                key: 2,
                lanes: 4,
                snapshot,
                local: None,
                more,
            }
        };
        let [one, other] = [Window::numbered(1), Window::numbered(2)];
        let accepted = [one.unwrap()];
        assert_eq!(granted(&welcome(one), Some(&accepted), "a").unwrap(), one);
        assert_eq!(granted(&welcome(None), Some(&accepted), "a").unwrap(), None);
        assert_eq!(granted(&welcome(other), None, "a").unwrap(), None);
        for accepted in [&accepted[..], &[]] {
            let error = granted(&welcome(other), Some(accepted), "a").unwrap_err().to_string();
            assert!(error.contains("not accepted"), "{error}");
        }
        let mut torn = welcome(None);
        torn.more.set(WINDOWS, &7_u32);
        assert!(granted(&torn, Some(&accepted), "a").is_err());
    }
}

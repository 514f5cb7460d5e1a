//! The addresses that a server may give out to this process, and those that it does.

use outboard_front::backend::ServerId;
use outboard_transport::reserved::mappings;
use outboard_wire::DecodeError;
use outboard_wire::handshake::arena::{ARENA, Arena};
use outboard_wire::handshake::windows::WINDOWS;
use outboard_wire::handshake::{HandshakeError, Welcome};
use outboard_wire::window::Window;
use parking_lot::Mutex;

use crate::link::ConnectError;

/// The windows in which this process has nothing, in their order: a server's workers that wait for
/// clients have the first ones. `None` if the system does not say what the process has.
pub(crate) fn acceptable() -> Option<Vec<Window>> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    Some(free(&String::from_utf8_lossy(&maps)))
}

/// A process has fewer windows than servers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooFew {
    pub(crate) servers: usize,
    pub(crate) windows: usize,
}

/// The windows in which a process had nothing when it began to connect to several servers.
static DEALT: Mutex<Option<(u32, Vec<Window>)>> = Mutex::new(None);

/// As [`acceptable`], for one of several servers: each has windows of its own, so that the servers
/// can be asked at once and none gives out another's addresses.
pub(crate) fn acceptable_of(
    server: ServerId,
    servers: usize,
) -> Result<Option<Vec<Window>>, TooFew> {
    let Some(free) = acceptable().filter(|_| servers > 1) else { return Ok(acceptable()) };
    let process = std::process::id();
    let mut dealt = DEALT.lock();
    let all = match dealt.take() {
        // Sessions have some of them by now.
        Some((of, all)) if of == process => all,
        _ => free.clone(),
    };
    let own = dealt_to(&all, server.place(), servers);
    *dealt = Some((process, all));
    let mut own = own?;
    own.retain(|window| free.contains(window));
    Ok(Some(own))
}

/// A server's share of windows. They are dealt in their order, because a server's workers that wait
/// for clients have the first ones.
fn dealt_to(windows: &[Window], place: usize, servers: usize) -> Result<Vec<Window>, TooFew> {
    if windows.len() < servers {
        return Err(TooFew { servers, windows: windows.len() });
    }
    Ok(windows.iter().skip(place).step_by(servers).copied().collect())
}

fn free(maps: &str) -> Vec<Window> {
    let mut free: Vec<Window> = Window::all().collect();
    for mapping in mappings(maps) {
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
    use outboard_wire::handshake::{Extensions, VERSION};

    use super::*;

    fn numbers(maps: &str) -> Vec<u32> {
        free(maps).iter().filter_map(Window::number).collect()
    }

    #[test]
    fn windows_in_which_anything_is_are_left_out() {
        assert_eq!(numbers("").len() as u32, Window::COUNT);
        let maps = "2fffffff0000-300000000000 rw-p 00000000 00:00 0 \n\
                    31fffffff000-320000001000 rw-p 00000000 00:00 0 \n\
                    600000000000-640000000000 ---p 00000000 00:00 0  [allocator of a sanitizer]\n\
                    7c0000000000-7c0000001000 rw-p 00000000 00:00 0 \n\
                    7fff181d4000-7fff181f5000 rw-p 00000000 00:00 0  [stack]\n\
                    ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n";
        let wanted: Vec<u32> =
            (2..Window::COUNT).filter(|number| ![24, 25].contains(number)).collect();
        assert_eq!(numbers(maps), wanted);
        assert!(numbers("100000000000-7fffffffffff ---p 00000000 00:00 0 \n").is_empty());
    }

    #[test]
    fn this_process_has_something_where_its_program_is() {
        let accepted = acceptable().unwrap();
        let own = windows_in_which_anything_is_are_left_out as *const () as u64;
        assert!(!accepted.is_empty() && accepted.iter().all(|window| !window.contains(own, 1)));
    }

    #[test]
    fn each_server_is_dealt_windows_of_its_own() {
        // A program lies in one of them.
        let free: Vec<Window> = Window::all().filter(|one| one.number() != Some(18)).collect();
        for servers in 2..=free.len() {
            let shares: Vec<Vec<Window>> =
                (0..servers).map(|place| dealt_to(&free, place, servers).unwrap()).collect();
            assert!(shares.iter().all(|share| !share.is_empty()), "{servers}");
            let mut all = shares.concat();
            all.sort_by_key(|window| window.range().start);
            assert_eq!(all, free, "{servers}");
            assert_eq!(shares[0][0], free[0], "the first server finds a worker that waits");
        }
        let too_few = TooFew { servers: 38, windows: 37 };
        assert_eq!(dealt_to(&free, 0, 38), Err(too_few));
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

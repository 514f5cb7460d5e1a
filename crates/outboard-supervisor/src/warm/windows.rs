//! The windows of waiting workers, and the choice of one for a session.

use outboard_wire::window::Window;

use super::Waiting;

/// The windows for workers to come. A program with several servers needs another one of each, so
/// servers that are likely to be in one list begin with different ones.
pub(super) struct Windows {
    first: u32,
}

impl Windows {
    /// Of a server that listens at `HOST:PORT`. Neighbouring hosts (`gpu1`, `gpu2`) and
    /// neighbouring ports begin with neighbouring windows.
    pub(super) fn new(listen: &str) -> Windows {
        let name = rustix::system::uname();
        let host = name.nodename().to_string_lossy();
        let port = listen.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        Windows::of(host.split('.').next().unwrap_or(""), port.filter(|port| *port != 0))
    }

    fn of(host: &str, port: Option<u32>) -> Windows {
        let number = match port {
            Some(port) => port.wrapping_add(number_of(host)),
            None => outboard_transport::random().map_or(0, u32::from_le_bytes),
        };
        Windows { first: number % Window::mostly_free().count() as u32 }
    }

    /// That of the next worker, beside those that others have: one that fewest have.
    pub(super) fn next(&self, others: &[Window]) -> Window {
        let (count, first) = (Window::mostly_free().count(), self.first as usize);
        let in_turn = Window::mostly_free().cycle().skip(first).take(count);
        let users = |window: &Window| others.iter().filter(|other| *other == window).count();
        in_turn.min_by_key(users).expect("there are windows")
    }
}

/// The last number in a name, such as 12 in `gpu12-left`, or else one that depends on all of it.
fn number_of(name: &str) -> u32 {
    let last = name.rsplit(|c: char| !c.is_ascii_digit()).find_map(|digits| digits.parse().ok());
    let mixed =
        || name.bytes().fold(0, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    last.unwrap_or_else(mixed)
}

/// The worker, by its place, that a session is given whose client accepts these windows, or
/// anything: one that is ready, and of those the one whose window the client likes best; or else
/// the one that has been getting ready the longest. One whose driver keeps to no window suits
/// everybody: another one would do no better.
pub(super) fn suitable<'a>(
    waiting: impl Iterator<Item = &'a Waiting>,
    accepted: Option<&[Window]>,
) -> Option<usize> {
    let rank = |waiting: &Waiting| match (waiting.window, accepted) {
        (Some(window), Some(accepted)) => accepted.iter().position(|one| *one == window),
        (None, _) | (_, None) => Some(0),
    };
    let ranked = waiting.enumerate().filter_map(|(place, one)| Some((place, one, rank(one)?)));
    ranked
        .min_by_key(|(_, one, rank)| if one.ready { (false, *rank) } else { (true, 0) })
        .map(|(place, ..)| place)
}

/// The window for a worker that is started for a client that accepts these: its first that there
/// is.
pub(crate) fn first_acceptable(accepted: Option<&[Window]>) -> Option<Window> {
    accepted?.iter().copied().find(|window| window.number().is_some())
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn window(number: u32) -> Window {
        Window::numbered(number).unwrap()
    }

    fn waiting(window: Option<Window>, ready: bool) -> Waiting {
        Waiting { number: 1, process: 2, ready, window, take: oneshot::channel().0 }
    }

    #[test]
    fn workers_are_spread_over_windows() {
        let windows = Windows { first: 14 };
        let mut taken = Vec::new();
        for _ in 0..40 {
            taken.push(windows.next(&taken));
        }
        let numbers: Vec<_> = taken.iter().filter_map(Window::number).collect();
        assert_eq!(numbers[..5], [14, 15, 0, 1, 2]);
        assert_eq!(numbers[16..19], [14, 15, 0], "then each has a second");
        let gone: Vec<_> =
            taken[..16].iter().copied().filter(|taken| *taken != window(5)).collect();
        assert_eq!(windows.next(&gone), window(5), "what was taken comes again");
        assert!(Windows::of("gpu1", None).first < 16);
    }

    #[test]
    fn neighbours_begin_with_different_windows() {
        let first = |host, port| Windows::of(host, Some(port)).first;
        assert_eq!(first("gpu12", 7777), (first("gpu11", 7777) + 1) % 16);
        assert_eq!(first("host", 7778), (first("host", 7777) + 1) % 16);
        assert_eq!(["rack3-gpu07", "gpu12-left"].map(number_of), [7, 12]);
        assert_ne!(number_of("left"), number_of("right"));
        assert!(Windows::new("127.0.0.1:7777").first < 16);
        assert!(Windows::new("none").first < 16);
    }

    #[test]
    fn a_session_gets_a_worker_whose_window_its_client_accepts() {
        let all = [
            waiting(Some(window(1)), false),
            waiting(Some(window(2)), true),
            waiting(Some(window(3)), true),
        ];
        let given = |accepted: Option<&[u32]>| {
            let accepted =
                accepted.map(|numbers| numbers.iter().copied().map(window).collect::<Vec<_>>());
            suitable(all.iter(), accepted.as_deref())
        };
        assert_eq!(given(None), Some(1), "any that is ready");
        assert_eq!(given(Some(&[3, 1, 2])), Some(2), "the client likes it best");
        assert_eq!(given(Some(&[1, 2, 3])), Some(1), "one that is ready");
        assert_eq!(given(Some(&[3, 1])), Some(2));
        assert_eq!(given(Some(&[1, 7])), Some(0), "one that is not ready yet");
        assert_eq!((given(Some(&[7])), given(Some(&[]))), (None, None));
        let without = [waiting(None, true)];
        assert_eq!(
            (suitable(without.iter(), Some(&[])), suitable(without.iter(), None)),
            (Some(0), Some(0))
        );
    }

    #[test]
    fn only_windows_that_there_are_come_of_a_list() {
        let strange: Window = outboard_wire::codec::decode_all(
            &[1 << 16, 1_u64 << 16].map(u64::to_le_bytes).concat(),
        )
        .unwrap();
        assert_eq!(first_acceptable(Some(&[strange, window(9), window(2)])), Some(window(9)));
        assert_eq!(
            (
                first_acceptable(Some(&[strange])),
                first_acceptable(Some(&[])),
                first_acceptable(None)
            ),
            (None, None, None)
        );
    }
}

//! The windows of waiting workers, and the choice of one for a session.

use outboard_wire::window::Window;

use super::Waiting;

/// The windows for workers to come. Each server begins with another one, so that a program with
/// several servers finds different ones at each.
pub(super) struct Windows {
    first: u32,
}

impl Windows {
    pub(super) fn new() -> Windows {
        // Without chance, all servers begin with the same.
        let number = outboard_transport::random().map_or(0, u32::from_le_bytes);
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

/// The worker, by its place, that a session is given whose client accepts these windows, or
/// anything: one that is ready, or else the one that has been getting ready the longest. One whose
/// driver keeps to no window suits everybody: another one would do no better.
pub(super) fn suitable<'a>(
    waiting: impl Iterator<Item = &'a Waiting>,
    accepted: Option<&[Window]>,
) -> Option<usize> {
    let suits = |waiting: &Waiting| match (waiting.window, accepted) {
        (Some(window), Some(accepted)) => accepted.contains(&window),
        (None, _) | (_, None) => true,
    };
    waiting
        .enumerate()
        .filter(|(_, one)| suits(one))
        .min_by_key(|(_, one)| !one.ready)
        .map(|(place, _)| place)
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
        assert!(Windows::new().first < 16);
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
        assert_eq!(given(Some(&[3, 1, 2])), Some(1));
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

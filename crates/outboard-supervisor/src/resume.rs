//! How long sessions outlive their connections.

use std::time::Duration;

use outboard_wire::handshake::resume::Terms;

use outboard_control::messages::Grace;

/// Settings of resuming.
#[derive(Debug, Clone)]
pub struct Config {
    /// How long a session is kept whose client is not heard of any more; zero: not at all.
    pub grace: Duration,
    /// How long a session is kept whose connection was closed without a goodbye: by the client's
    /// system, as its process was killed, or by something between.
    pub closed_grace: Duration,
    /// A peer that does not answer for so long is taken for gone.
    pub keepalive: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            grace: Duration::from_secs(60),
            closed_grace: Duration::from_secs(5),
            keepalive: outboard_transport::tcp::USUAL_KEEPALIVE,
        }
    }
}

/// No client has its session kept for longer, whatever it asks for.
const LONGEST_GRACE: Duration = Duration::from_secs(24 * 3600);

impl Config {
    /// The terms for a client that asks for these.
    pub(super) fn grace(&self, wish: Terms) -> Option<Grace> {
        let silent = self.grace.min(LONGEST_GRACE).min(wish.grace);
        (!silent.is_zero()).then(|| Grace { silent, closed: self.closed_grace.min(silent) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_time_counts() {
        let config = Config { grace: Duration::from_secs(20), ..Config::default() };
        let grace = |seconds| config.grace(Terms { grace: Duration::from_secs(seconds) });
        let terms = |silent, closed| {
            Some(Grace { silent: Duration::from_secs(silent), closed: Duration::from_secs(closed) })
        };
        assert_eq!(grace(60), terms(20, 5));
        assert_eq!(grace(3), terms(3, 3));
        assert_eq!(grace(0), None);
        let off = Config { grace: Duration::ZERO, ..Config::default() };
        assert_eq!(off.grace(Terms { grace: Duration::MAX }), None);
    }
}

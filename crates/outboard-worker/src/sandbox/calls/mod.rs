//! The system calls that a worker may make once its driver is up.

mod allowed;
mod arguments;
mod filter;
mod refused;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::str::FromStr;

use outboard_control::calls::{Number, newer};

use arguments::Rest;
use filter::{Filter, Judged, Verdict, install};

/// Which system calls are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calls {
    /// All but those that are known to do no harm.
    #[default]
    Allow,
    /// Those that are known to do harm.
    Deny,
    /// The same, and the supervisor is told of all that [`Calls::Allow`] would refuse.
    Record,
}

impl Calls {
    const ALL: [Calls; 3] = [Calls::Allow, Calls::Deny, Calls::Record];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Calls::Allow => "allow",
            Calls::Deny => "deny",
            Calls::Record => "record",
        }
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Calls {
    type Err = String;

    fn from_str(text: &str) -> Result<Calls, String> {
        let named = Calls::ALL.into_iter().find(|calls| calls.name() == text);
        named.ok_or_else(|| format!("`{text}` is neither allow, deny nor record"))
    }
}

/// Refuses calls in all threads, and gives `tell` the listener by which whoever has it decides the
/// calls that are refused or in doubt. Without a listener, they fail.
pub(super) fn refuse(
    calls: Calls,
    collectives: bool,
    tell: Option<&dyn Fn(OwnedFd) -> io::Result<()>>,
) -> Result<(), String> {
    if let Some(tell) = tell {
        match install(&filter(calls, collectives, true).program(), true) {
            Ok(Some(listener)) => {
                if let Err(error) = tell(listener) {
                    // Without the listener they fail, as calls that the kernel does not have.
                    tracing::warn!(%error, "the server is not told of refused system calls");
                }
                return Ok(());
            }
            Ok(None) => return Err("the kernel gave no listener".to_owned()),
            Err(error) => {
                tracing::debug!(%error, "refused system calls are not told to the server");
            }
        }
    }
    install(&filter(calls, collectives, false).program(), false)
        .map(drop)
        .map_err(|error| error.to_string())
}

fn numbers(listed: &[Number], by_name: &[&str]) -> BTreeSet<Number> {
    listed.iter().copied().chain(by_name.iter().filter_map(|name| newer(name))).collect()
}

fn filter(calls: Calls, collectives: bool, has_listener: bool) -> Filter {
    let fails = Verdict::Fails(libc::EPERM);
    // What is recorded goes on, so what is refused cannot be told then.
    let refused = if has_listener && calls != Calls::Record { Verdict::Asked } else { fails };
    let in_doubt = if has_listener { Verdict::Asked } else { fails };
    let unlisted = match calls {
        Calls::Allow => refused,
        Calls::Record if has_listener => Verdict::Asked,
        Calls::Deny | Calls::Record => Verdict::Allowed,
    };
    let judged = arguments::rules(std::process::id(), collectives).into_iter().map(|rule| {
        let mut cases: Vec<_> =
            rule.good.into_iter().map(|tests| (tests, Verdict::Allowed)).collect();
        let otherwise = match rule.rest {
            Rest::Refused => refused,
            Rest::Unlisted(bad) => {
                cases.extend(bad.into_iter().map(|tests| (tests, refused)));
                unlisted
            }
            Rest::OfThreads(some) => {
                cases.extend(some.into_iter().map(|tests| (tests, in_doubt)));
                refused
            }
        };
        Judged { call: rule.call, cases, otherwise }
    });
    let judged = judged.collect();
    let mut allowed = numbers(allowed::ALLOWED, allowed::NEWER);
    let refused_always = numbers(refused::REFUSED, refused::NEWER);
    if collectives {
        allowed.extend(allowed::OF_COLLECTIVES);
    }
    Filter {
        // Its flags are in memory, where no filter looks, and the C library does without it.
        unknown: vec![libc::SYS_clone3],
        judged,
        listed: vec![(allowed, Verdict::Allowed), (refused_always, refused)],
        otherwise: unlisted,
        newer: if unlisted == fails { Verdict::Fails(libc::ENOSYS) } else { unlisted },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_is_allowed_and_refused() {
        let allowed = numbers(allowed::ALLOWED, allowed::NEWER);
        let refused = numbers(refused::REFUSED, refused::NEWER);
        assert_eq!(allowed.intersection(&refused).collect::<Vec<_>>(), Vec::<&Number>::new());
        let names = [allowed::NEWER, refused::NEWER].concat();
        assert!(names.iter().all(|name| newer(name).is_some()));
        let judged = arguments::rules(1, true).into_iter().map(|rule| rule.call);
        let twice: Vec<_> = judged.filter(|call| allowed.contains(call)).collect();
        assert_eq!(twice, Vec::<Number>::new(), "the list would not be asked");
    }

    #[test]
    fn a_filter_fits() {
        for calls in Calls::ALL {
            assert_eq!(calls.name().parse(), Ok(calls));
            let steps = filter(calls, true, true).program().len();
            assert!(steps < 4096, "{calls}: {steps}");
        }
        assert!("some".parse::<Calls>().is_err());
    }
}

//! What NVIDIA's driver compiles from PTX, which it keeps in files.

use outboard_supervisor::auth::tokens;
use outboard_supervisor::{Access, Config};

use super::confinement::Confinement;
use crate::driver::{COMPUTE_CACHE, NO_COMPUTE_CACHE};

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Whether sessions share the files in which NVIDIA's driver caches code that it has compiled
    /// from PTX. `auto` shares them only if the server does not distinguish its clients: a
    /// compromised worker could leave false code there for others.
    #[arg(long, default_value = "auto", value_name = "auto|shared|off")]
    compute_cache: Choice,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Choice {
    Auto,
    Shared,
    Off,
}

impl Args {
    /// Tells the workers. To be called when all else in the configuration is settled.
    pub(crate) fn apply(&self, config: &mut Config, confinement: &Confinement) {
        let env = &mut config.worker.env;
        if self.choice(tells_apart(&config.listen, &config.auth, config.access)) == Choice::Off {
            env.push((NO_COMPUTE_CACHE.into(), "1".into()));
        } else if let Some(folder) = confinement.cache("compute", None) {
            // The driver would look for it in the home folder of the server's user.
            env.push((COMPUTE_CACHE.into(), folder.into()));
        }
    }

    fn choice(&self, tells_apart: bool) -> Choice {
        match self.compute_cache {
            Choice::Auto if tells_apart => Choice::Off,
            Choice::Auto => Choice::Shared,
            chosen => chosen,
        }
    }
}

/// Whether there are clients that are nothing to each other: other machines, those who show who
/// they are, other users of this machine.
fn tells_apart(listen: &str, auth: &outboard_supervisor::auth::Config, access: Access) -> bool {
    let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host).trim_matches(['[', ']']);
    let has_tokens = auth
        .state
        .as_deref()
        .is_some_and(|state| tokens::list(state).is_ok_and(|all| !all.is_empty()));
    let here = host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    !here || auth.required || auth.client_ca.is_some() || access != Access::Owner || has_tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_tells_clients_apart_has_no_cache_for_all() {
        let plain = outboard_supervisor::auth::Config::default();
        for here in ["127.0.0.1:9470", "[::1]:9470", "localhost:0"] {
            assert!(!tells_apart(here, &plain, Access::Owner), "{here}");
            assert!(
                tells_apart(here, &plain, Access::All) && tells_apart(here, &plain, Access::Group)
            );
        }
        for elsewhere in ["0.0.0.0:9470", "[::]:9470", "10.0.0.1:0", "gpu1:9470"] {
            assert!(tells_apart(elsewhere, &plain, Access::Owner), "{elsewhere}");
        }
        let asked = outboard_supervisor::auth::Config { required: true, ..plain.clone() };
        let certified =
            outboard_supervisor::auth::Config { client_ca: Some("/ca".into()), ..plain.clone() };
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().to_owned();
        let with_tokens = outboard_supervisor::auth::Config { state: Some(state.clone()), ..plain };
        assert!(!tells_apart("127.0.0.1:1", &with_tokens, Access::Owner), "there are none yet");
        tokens::create(&state, "alice", None, outboard_control::identity::Limits::default())
            .unwrap();
        assert!([asked, certified, with_tokens].iter().all(|auth| tells_apart(
            "127.0.0.1:1",
            auth,
            Access::Owner
        )));
        let args = |compute_cache| Args { compute_cache };
        assert!(
            args(Choice::Auto).choice(true) == Choice::Off
                && args(Choice::Auto).choice(false) == Choice::Shared
        );
        assert!(
            args(Choice::Shared).choice(true) == Choice::Shared
                && args(Choice::Off).choice(false) == Choice::Off
        );
    }
}

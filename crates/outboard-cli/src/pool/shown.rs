//! How a program shows a lease to the lease's servers.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use outboard_client::own_settings::SAY_LOST;
use outboard_client::{own_settings, target};
use outboard_pool::api::Reach;

/// The variables by which a program finds these servers and shows them the lease, and the key to
/// which it is bound, that are in these files.
pub(crate) fn variables(
    servers: &[Reach],
    lease: &Path,
    key: &Path,
) -> BTreeMap<&'static str, OsString> {
    let authorities = std::env::var("OUTBOARD_TLS_CA").ok();
    let mut own = serde_json::Map::new();
    for server in servers {
        let mut settings = serde_json::json!({
            "lease": lease,
            "lease-key": key,
            "pool-name": server.name,
        });
        match (&server.fingerprint, &authorities) {
            (Some(fingerprint), _) => settings["tls-fingerprint"] = fingerprint.as_str().into(),
            (None, Some(path)) => settings["tls-ca"] = path.as_str().into(),
            (None, None) => {}
        }
        own.insert(server.address.clone(), settings);
    }
    let addresses = servers.iter().map(|server| server.address.as_str());
    let list = addresses.collect::<Vec<_>>().join(",");
    let mut variables = BTreeMap::from([
        (target::VARIABLE, list.into()),
        (own_settings::VARIABLE, serde_json::Value::from(own).to_string().into()),
        ("OUTBOARD_LEASE", lease.into()),
        ("OUTBOARD_LEASE_KEY", key.into()),
    ]);
    let says_lost = if servers.len() == 1 { own_settings::ALONE } else { "1" };
    variables.insert(SAY_LOST, says_lost.into());
    variables
}

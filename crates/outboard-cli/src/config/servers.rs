//! Settings of single servers: tables `[servers."HOST"]`, which the library gets as one variable.

use std::ffi::OsString;

use outboard_client::own_settings::{VARIABLE, is_credential, keys};
use outboard_client::target::{Target, Targets};
use outboard_transport::Endpoint;
use serde_json::{Map, Value};

use super::client;
use super::context::InForce;
use super::file::Setting;

/// The table of servers.
pub(crate) const TABLE: &str = "servers";

/// One server, or a range of them, and its settings.
#[derive(Clone)]
pub(crate) struct Own {
    pub(crate) name: String,
    pub(crate) settings: Vec<Setting>,
}

/// The keys that may stand in such a table.
pub(super) fn has_key(name: &str) -> bool {
    keys().any(|key| key == name)
}

/// Returns the mistake in a name: it is a list of servers without their devices.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let targets: Targets = name.parse().map_err(|error| format!("{error}"))?;
    let has_devices = targets.servers().iter().any(|server| !server.devices.is_empty());
    let is_started = |target: &Target| matches!(target.address, Endpoint::Local | Endpoint::Ssh(_));
    if targets.servers().iter().any(is_started) {
        return Err("a server that is started for each run has no settings of its own".to_owned());
    }
    if name.contains('@') || targets.by_rank().is_some() || has_devices {
        return Err("write HOST[:PORT] or unix:PATH, without a device".to_owned());
    }
    Ok(())
}

/// Sets the variable for these settings, unless it is set already and counts.
pub(super) fn set(all: &[Own], in_force: &InForce) {
    if all.is_empty() || (std::env::var_os(VARIABLE).is_some() && !in_force.by_flag) {
        return;
    }
    // SAFETY: nothing but the main thread exists yet: the command line has not even been
    // understood.
    unsafe {
        std::env::set_var(VARIABLE, object(all, std::env::var_os("HOME").as_ref()).to_string())
    };
}

fn object(all: &[Own], home: Option<&OsString>) -> Value {
    let of_one = |own: &Own| {
        let text = |setting: &Setting| {
            let text = client::value(setting, home.cloned());
            (setting.name.clone(), Value::from(text.to_string_lossy().into_owned()))
        };
        Value::Object(own.settings.iter().map(text).collect())
    };
    Value::Object(all.iter().map(|own| (own.name.clone(), of_one(own))).collect())
}

/// The variable's value without what servers are recognised by, and clients known: for flags that
/// say so for all servers. None if nothing is left, or there is no such value.
pub(crate) fn without_credentials() -> Option<OsString> {
    let text = std::env::var(VARIABLE).ok()?;
    let mut all: Map<String, Value> = serde_json::from_str(&text).ok()?;
    for settings in all.values_mut().filter_map(Value::as_object_mut) {
        settings.retain(|key, _| !is_credential(key));
    }
    all.retain(|_, settings| settings.as_object().is_none_or(|settings| !settings.is_empty()));
    (!all.is_empty()).then(|| Value::Object(all).to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_gets_what_the_tables_say() {
        let setting = |name: &str, text: &str| Setting {
            name: name.to_owned(),
            values: vec![text.to_owned()],
            line: 1,
        };
        let own = |name: &str, settings: Vec<Setting>| Own { name: name.to_owned(), settings };
        let all = [
            own("gpu1", vec![setting("token-file", "~/t"), setting("transport", "tcp")]),
            own("gpu[2-3]:80", vec![setting("tls", "off")]),
        ];
        assert_eq!(
            object(&all, Some(&"/h/me".into())).to_string(),
            r#"{"gpu1":{"token-file":"/h/me/t","transport":"tcp"},"gpu[2-3]:80":{"tls":"off"}}"#
        );
        for (name, is_right) in [
            ("gpu1", true),
            ("gpu[1-2]:80", true),
            ("unix:/s", true),
            ("gpu1/0", false),
            ("@f", false),
            ("gpu1:by-rank", false),
            ("", false),
        ] {
            assert_eq!(check_name(name).is_ok(), is_right, "{name}");
        }
    }
}

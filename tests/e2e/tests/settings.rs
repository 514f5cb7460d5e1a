//! Settings: a flag, else the environment, else the configuration file, else the default.

use std::io::Write;
use std::process::Output;

use outboard_e2e::{Folder, Server, command};
use tempfile::NamedTempFile;

/// A configuration file of a test; gone when dropped.
struct Configuration(NamedTempFile);

impl Configuration {
    fn new(text: &str) -> Configuration {
        let mut file = NamedTempFile::with_suffix(".toml").expect("a temporary file can be made");
        file.write_all(text.as_bytes()).expect("it can be written");
        Configuration(file)
    }

    fn path(&self) -> &str {
        self.0.path().to_str().expect("a plain path")
    }
}

fn outboard(args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = command();
    command.args(args).env_remove("OUTBOARD_CONFIG").env("XDG_CONFIG_HOME", "/nonexistent");
    command.envs(env.iter().copied()).output().expect("outboard starts")
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The setting `key` in force, and where it came from.
fn shown(args: &[&str], env: &[(&str, &str)], key: &str) -> (String, String) {
    let output = outboard(&[&["config", "show", "--json"], args].concat(), env);
    assert!(output.status.success(), "{}", said(&output.stderr));
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let row = rows
        .as_array()
        .and_then(|rows| rows.iter().find(|row| row["key"] == key))
        .expect("the setting is there");
    (
        row["value"].as_str().unwrap_or_default().to_owned(),
        row["from"].as_str().unwrap_or_default().to_owned(),
    )
}

#[test]
fn mistakes_are_all_told_and_nothing_starts() {
    let file = Configuration::new("[serve]\nlisen = \"::\"\nwarm = 99\n");
    let output = outboard(&["config", "check", file.path()], &[]);
    let text = said(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in ["OB0703", "2 mistakes", ":2:1", "did you mean `listen`", ":3:8", "0 to 64"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let output = outboard(&["serve", "--config", file.path()], &[]);
    assert!(output.status.code() == Some(1) && said(&output.stderr).contains("OB0703"));
    let output = outboard(&["config", "check", "/nonexistent/outboard.toml"], &[]);
    assert!(output.status.code() == Some(1) && said(&output.stderr).contains("OB0704"));
    let right = Configuration::new("[serve]\nwarm = 0\n");
    let output = outboard(&["config", "check", right.path()], &[]);
    assert!(
        output.status.success() && said(&output.stdout).contains("is right: 1 setting"),
        "{output:?}"
    );
}

#[test]
fn flags_go_before_the_environment_and_that_before_the_file() {
    let file =
        Configuration::new("[serve]\nwarm = 3\ndriver = \"cpu\"\n\n[client]\nserver = \"gpu1\"\n");
    let named = ["--config", file.path()];
    let (value, from) = shown(&named, &[], "warm");
    assert!(value == "3" && from.ends_with(".toml:2"), "{value} {from}");
    assert_eq!(
        shown(&named, &[("OUTBOARD_SERVE_WARM", "4")], "warm"),
        ("4".into(), "OUTBOARD_SERVE_WARM".into())
    );
    assert_eq!(shown(&[], &[], "warm"), ("auto".into(), "default".into()));
    let by_variable = [("OUTBOARD_CONFIG", file.path())];
    assert_eq!(shown(&[], &by_variable, "driver").0, "cpu");
    assert_eq!(shown(&["--config", "none"], &by_variable, "driver").0, "");
    assert_eq!(shown(&named, &[], "server").0, "gpu1");
    assert_eq!(
        shown(&named, &[("OUTBOARD_SERVER", "gpu2")], "server"),
        ("gpu2".into(), "OUTBOARD_SERVER".into())
    );
}

#[test]
fn a_server_and_its_client_take_what_the_file_says() {
    let folder = Folder::create();
    let socket = folder.path("x.sock");
    let text = format!(
        "[serve]\nsocket = \"{socket}\"\ndriver = \"/nonexistent/x.so\"\n\n[client]\nserver = \"unix:{socket}\"\n"
    );
    let file = Configuration::new(&text);
    // The socket comes from the file, the driver from the flag in spite of it.
    let _server = Server::start_with(&["--driver", "cpu", "--config", file.path()], &[]);
    let output = outboard(&["devices", "--config", file.path()], &[]);
    let text = said(&output.stdout);
    assert!(output.status.success() && text.contains(&socket), "{text}{}", said(&output.stderr));
    // The program is told, too, and its own arguments are not ours.
    let output = outboard(
        &["--config", file.path(), "run", "sh", "-c", "echo $OUTBOARD_SERVER $1", "sh", "--config"],
        &[],
    );
    assert_eq!(
        said(&output.stdout),
        format!("unix:{socket} --config\n"),
        "{}",
        said(&output.stderr)
    );
    let output = outboard(&["run", "--config", file.path(), "--local-cpu", "true"], &[]);
    assert!(
        output.status.success(),
        "a server in the file is none of --local-cpu's business: {}",
        said(&output.stderr)
    );
}

#[test]
fn commands_for_the_server_find_what_its_settings_say() {
    let folder = Folder::create();
    let state = folder.join("state");
    let file = Configuration::new(&format!("[serve]\nstate = \"{}\"\n", state.display()));
    let output = outboard(&["token", "create", "--owner", "me", "--config", file.path()], &[]);
    assert!(output.status.success(), "{}", said(&output.stderr));
    assert!(state.is_dir(), "the token is where the server looks for it");
    let fingerprint = |file: &Configuration| {
        let output = outboard(&["token", "fingerprint", "--config", file.path()], &[]);
        assert!(output.status.success(), "{}", said(&output.stderr));
        said(&output.stdout)
    };
    let own = fingerprint(&file);
    // Another certificate, as the one of an authority would be.
    let other = state.join("other");
    let other_file = Configuration::new(&format!("[serve]\nstate = \"{}\"\n", other.display()));
    let theirs = fingerprint(&other_file);
    let (certificate, key) = (other.join("server.crt"), other.join("server.key"));
    let text = format!(
        "[serve]\nstate = \"{}\"\ntls-cert = \"{}\"\ntls-key = \"{}\"\n",
        state.display(),
        certificate.display(),
        key.display()
    );
    let named = Configuration::new(&text);
    assert!(own != theirs && fingerprint(&named) == theirs, "it is the one that the server shows");
    let output = outboard(&["token", "create", "--owner", "me", "--config", named.path()], &[]);
    assert!(said(&output.stdout).contains(theirs.trim()), "{}", said(&output.stdout));
}

#[test]
fn the_documentation_lists_every_setting() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(page).expect("the page is there");
    let output = outboard(&["config", "reference"], &[]);
    for row in said(&output.stdout).lines() {
        assert!(
            text.contains(row),
            "docs/configuration.md is old, `cargo xtask book` writes it anew: {row}"
        );
    }
}

//! What packagers and containers take from the command: completions, manual pages, a CDI specification.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use outboard_e2e::{Server, dist, programs};
use serde_json::Value;

fn outboard(args: &[&str]) -> Output {
    let mut command = Command::new(dist().join("bin/outboard"));
    command.args(args).env("OUTBOARD_CONFIG", "none").env_remove("OUTBOARD_SERVER");
    command.output().expect("outboard starts")
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The subcommands that people see.
fn subcommands() -> Vec<String> {
    let help = said(&outboard(&["--help"]));
    let listed = help.split("Commands:").nth(1).and_then(|rest| rest.split("\n\n").next()).unwrap_or_default();
    let names: Vec<String> =
        listed.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert!(names.len() > 8 && names.contains(&"serve".to_owned()), "{help}");
    names
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("outboard-packaging-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a temporary folder can be made");
    folder
}

#[test]
fn completions_know_every_command() {
    let folder = folder("completions");
    for shell in ["bash", "zsh", "fish"] {
        let script = said(&outboard(&["completions", shell]));
        for name in subcommands() {
            assert!(script.contains(&name), "{shell}: {name}");
        }
        std::fs::write(folder.join(shell), script).expect("it can be written");
    }
    // As bash does when somebody presses the tabulator key.
    let complete = |words: &str| {
        let script = format!(
            ". {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _outboard outboard \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[@]}}\"",
            folder.join("bash").display()
        );
        said(&Command::new("bash").args(["-c", &script]).output().expect("bash starts")).trim().to_owned()
    };
    assert_eq!(complete("outboard doc"), "doctor");
    assert_eq!(complete("outboard serve --image-cache-"), "--image-cache-limit");
    assert_eq!(complete("outboard config ch"), "check");
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = folder("man");
    said(&outboard(&["man", folder.to_str().expect("a plain path")]));
    for name in subcommands() {
        let page = std::fs::read_to_string(folder.join(format!("outboard-{name}.1")))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".TH") && page.contains(".SH SYNOPSIS"), "{name}");
    }
    let hidden = ["worker", "check-driver", "doctor-trial"];
    assert!(hidden.iter().all(|name| !folder.join(format!("outboard-{name}.1")).exists()), "what is hidden has none");
    let _ = std::fs::remove_dir_all(&folder);
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Checks what the specification of CDI asks, and returns the mounts and, for a device, the variables.
fn checked(specification: &Value, device: &str) -> (Vec<(String, String)>, BTreeMap<String, String>) {
    let only = |value: &Value, keys: &[&str]| {
        for key in value.as_object().expect("an object").keys() {
            assert!(keys.contains(&key.as_str()), "{key} is not known: {value}");
        }
    };
    only(specification, &["cdiVersion", "kind", "containerEdits", "devices"]);
    assert_eq!(specification["cdiVersion"], "0.5.0");
    let devices = specification["devices"].as_array().expect("devices");
    let mut names: Vec<&str> = devices.iter().filter_map(|device| device["name"].as_str()).collect();
    assert!(names.iter().all(|name| name.chars().all(|letter| letter.is_ascii_alphanumeric())), "{names:?}");
    names.dedup();
    assert_eq!(names.len(), devices.len(), "each name is there once");
    let found = devices.iter().find(|one| one["name"] == device).unwrap_or_else(|| panic!("no {device} in {names:?}"));
    let (mut mounts, mut variables) = (Vec::new(), BTreeMap::new());
    for edits in [&specification["containerEdits"], &found["containerEdits"]] {
        only(edits, &["env", "mounts"]);
        for mount in edits["mounts"].as_array().into_iter().flatten() {
            only(mount, &["hostPath", "containerPath", "options"]);
            let path =
                |key: &str| mount[key].as_str().filter(|path| path.starts_with('/')).expect("absolute").to_owned();
            assert!(Path::new(&path("hostPath")).exists(), "{mount}");
            assert!(texts(&mount["options"]).contains(&"ro".to_owned()), "{mount}");
            mounts.push((path("hostPath"), path("containerPath")));
        }
        for variable in texts(&edits["env"]) {
            let (name, value) = variable.split_once('=').expect("NAME=VALUE");
            variables.insert(name.to_owned(), value.to_owned());
        }
    }
    (mounts, variables)
}

#[test]
fn a_container_gets_the_client() {
    let folder = folder("cdi");
    let socket = folder.join("run/x.sock");
    std::fs::create_dir(folder.join("run")).expect("a folder can be made");
    let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
    let args = ["--driver", "cpu", "--socket", &text(&socket)];
    let server = Server::start_with(&args, &[("OUTBOARD_CPU_DEVICES", "2")]);
    let file = folder.join("cdi/outboard.json");
    let generate = ["cdi", "generate", "--server", server.address(), "--output", &text(&file)];
    said(&outboard(&generate));
    let specification: Value = serde_json::from_slice(&std::fs::read(&file).expect("it was written")).expect("JSON");
    assert_eq!(specification["kind"], "outboard.dev/gpu");
    let (mounts, variables) = checked(&specification, "1");
    let real = text(&socket.canonicalize().expect("the server listens"));
    assert_eq!(
        variables["OUTBOARD_SERVER"],
        format!("unix:{real}/1"),
        "this machine's loopback is not the container's"
    );
    // A container, as far as this machine lets one be made: other files at the paths of the specification, and no network.
    let program = programs().join("vector_add");
    let mut script = "set -e\nmount -t tmpfs none /opt\n".to_owned();
    for (host, inside) in mounts.iter().filter(|(host, inside)| host != inside) {
        let make = if Path::new(host).is_dir() { "mkdir -p" } else { "touch" };
        let parent = Path::new(inside).parent().expect("it has one").display();
        script += &format!("mkdir -p {parent}\n{make} {inside}\nmount --bind {host} {inside}\n");
    }
    script += &format!("{}\n/opt/outboard/bin/outboard devices\n", program.display());
    let isolated = |script: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--net", "--map-root-user", "sh", "-c", script]).envs(&variables);
        unshare.env("OUTBOARD_CONFIG", "none").output().expect("unshare starts")
    };
    let output = if isolated("mount -t tmpfs none /opt").status.success() {
        let output = isolated(&script);
        assert!(said(&output).contains("over unix"), "the socket is used: {output:?}");
        output
    } else {
        // Not in a namespace, then with the mounts' own paths: variables and socket are tried all the same.
        let outside =
            |value: &String| mounts.iter().fold(value.clone(), |value, (host, inside)| value.replace(inside, host));
        let variables = variables.iter().map(|(name, value)| (name, outside(value)));
        Command::new(&program).envs(variables).output().expect("the program starts")
    };
    assert!(said(&output).starts_with("vector_add: "), "{output:?}");
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn a_specification_that_cannot_work_is_refused() {
    let output = outboard(&["cdi", "generate", "--server", "127.0.0.1:1"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && text.contains("OB0107") && text.contains("container"), "{text}");
    // A server elsewhere need not be up.
    let output = outboard(&["cdi", "generate", "--server", "no-such-host.invalid", "--kind", "example.org/gpu"]);
    let specification: Value = serde_json::from_str(&said(&output)).expect("JSON");
    let (_, variables) = checked(&specification, "all");
    assert_eq!(variables["OUTBOARD_SERVER"], "no-such-host.invalid:9470");
    assert!(variables["LD_LIBRARY_PATH"].starts_with("/opt/outboard/lib/outboard/client:"));
    let output = outboard(&["cdi", "generate", "--kind", "gpu", "--server", "gpu1"]);
    assert_eq!(output.status.code(), Some(2));
}

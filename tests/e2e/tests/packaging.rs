//! What packagers and containers take from the command: completions, manual pages, a CDI
//! specification.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use outboard_e2e::{Folder, Program, Server, command, dist, one_line, outboard, programs};
use outboard_test_support::skip;
use serde_json::Value;

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The subcommands that people see.
fn subcommands() -> Vec<String> {
    let help = said(&outboard(&["--help"]));
    let listed = help.split("\nOptions:").next().unwrap_or_default();
    let lines = listed.lines().filter_map(|line| line.strip_prefix("  "));
    let names: Vec<String> =
        lines.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert!(names.len() > 8 && names.contains(&"serve".to_owned()), "{help}");
    names
}

/// What people ask a command that they do not know.
#[test]
fn help_and_documentation_are_in_the_command() {
    let asked = said(&outboard(&["help", "run"]));
    assert!(asked.contains("outboard run --server gpu1 -- python train.py"), "{asked}");
    assert_eq!(said(&outboard(&["version"])), said(&outboard(&["--version"])));
    let listed = said(&outboard(&["docs"]));
    assert!(listed.contains("\nShare a pool\n  pool  "), "{listed}");
    let page = said(&outboard(&["docs", "ways"]));
    assert!(page.starts_with("# Which of the five ways"), "{page}");
    assert!(page.contains("a pool (`outboard docs pool`)"), "{page}");
    let unknown = outboard(&["docs", "nothing"]);
    let why = one_line(&unknown.stderr);
    assert!(!unknown.status.success() && why.contains("`outboard docs` lists the pages"), "{why}");
}

#[test]
fn completions_know_every_command() {
    let folder = Folder::create();
    for shell in ["bash", "zsh", "fish"] {
        let script = said(&outboard(&["completions", shell]));
        assert!(script.contains("OUTBOARD_COMPLETE"), "{shell}: {script}");
        std::fs::write(folder.join(shell), script).expect("it can be written");
        // What the script asks the program.
        let mut ask = command();
        ask.env("OUTBOARD_COMPLETE", shell).env("_CLAP_COMPLETE_INDEX", "1").env("_CLAP_IFS", "\n");
        let all = said(&ask.args(["--", "outboard", ""]).output().expect("outboard starts"));
        for name in subcommands() {
            assert!(all.contains(&name), "{shell}: {name} is not in {all}");
        }
        assert!(!all.contains("doctor-trial"), "{shell}: hidden commands are nobody's choice");
    }
    let complete = |words: &str| complete(&folder, words);
    assert_eq!(complete("outboard doct"), "doctor");
    assert_eq!(complete("outboard serve --image-cache-"), "--image-cache-limit");
    assert_eq!(complete("outboard config ch"), "check");
    assert_eq!(complete("outboard ls --js"), "--json", "a command's other name is as good");
    assert_eq!(
        complete("outboard explain OB010"),
        "OB0101 OB0102 OB0103 OB0104 OB0105 OB0106 OB0107 OB0108 OB0109"
    );

    let file = folder.path("outboard.toml");
    let contexts =
        "[contexts.lab]\nserver = \"gpu1\"\n[contexts.lobby]\nserver = \"unix:/run/x.sock\"\n";
    std::fs::write(&file, contexts).expect("it can be written");
    assert_eq!(complete(&format!("outboard --config {file} --context l")), "lab lobby");
    assert_eq!(complete(&format!("outboard context use --config {file} d")), "default");
    assert_eq!(complete(&format!("outboard devices --config {file} --server g")), "gpu1");
    assert_eq!(
        complete(&format!("outboard devices --config {file}.not --server g")),
        "",
        "nobody is told of mistakes"
    );

    let admin = folder.path("admin.sock");
    let server = Server::start_with(&["--driver", "cpu", "--admin", &admin], &[]);
    let mut program = Program::new("endless").start_through(&server);
    program.wait_for_line("running");
    let listed = outboard(&["sessions", "--json", "--over", "0.01", "--admin", &admin]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    let id = &listed["sessions"][0]["id"].as_str().expect("a session")[..8];
    assert_eq!(complete(&format!("outboard kill --admin {admin} {}", &id[..1])), id);
    assert_eq!(complete(&format!("outboard trace --admin {admin} {}", &id[..3])), id);
    assert_eq!(complete(&format!("outboard kill --admin={admin} --owner an")), "anonymous");
}

/// What bash would write when somebody presses the tabulator key behind these words, by the script
/// in a folder.
fn complete(folder: &Path, words: &str) -> String {
    let script = format!(
        "PATH={}:$PATH; . {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _clap_complete_outboard outboard \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[@]}}\"",
        dist().join("bin").display(),
        folder.join("bash").display()
    );
    said(&Command::new("bash").args(["-c", &script]).output().expect("bash starts"))
        .trim()
        .to_owned()
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = Folder::create();
    said(&outboard(&["man", folder.to_str().expect("a plain path")]));
    for name in subcommands() {
        let page = std::fs::read_to_string(folder.join(format!("outboard-{name}.1")))
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.contains(".TH") && page.contains(".SH SYNOPSIS"), "{name}");
    }
    // What stands at the foot of a page: the fourth word behind `.TH`, quoted.
    let release = said(&outboard(&["--version"]));
    for name in ["outboard", "outboard-serve", "outboard-config-check"] {
        let page = std::fs::read_to_string(folder.join(format!("{name}.1"))).expect("a page");
        let title = page.lines().find(|line| line.starts_with(".TH ")).expect("a title");
        assert!(title.contains(&format!("\"{}\"", release.trim())), "{title} of {name}, {release}");
    }
    let page = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a page");
    assert_eq!(page("outboard-ls.1"), ".so man1/outboard-devices.1\n");
    assert!(
        page("outboard-devices.1").contains("also `outboard ls`")
            && page("outboard.1").contains("also `outboard ls`")
    );
    assert_eq!(page("outboard-context-ls.1"), ".so man1/outboard-context-list.1\n");
    let hidden = ["worker", "check-driver", "doctor-trial"];
    assert!(
        hidden.iter().all(|name| !folder.join(format!("outboard-{name}.1")).exists()),
        "what is hidden has none"
    );
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Checks what the specification of CDI asks, and returns the mounts and, for a device, the
/// variables.
fn checked(
    specification: &Value,
    device: &str,
) -> (Vec<(String, String)>, BTreeMap<String, String>) {
    let only = |value: &Value, keys: &[&str]| {
        for key in value.as_object().expect("an object").keys() {
            assert!(keys.contains(&key.as_str()), "{key} is not known: {value}");
        }
    };
    only(specification, &["cdiVersion", "kind", "containerEdits", "devices"]);
    assert_eq!(specification["cdiVersion"], "0.5.0");
    let devices = specification["devices"].as_array().expect("devices");
    let mut names: Vec<&str> =
        devices.iter().filter_map(|device| device["name"].as_str()).collect();
    assert!(
        names.iter().all(|name| name.chars().all(|letter| letter.is_ascii_alphanumeric())),
        "{names:?}"
    );
    names.dedup();
    assert_eq!(names.len(), devices.len(), "each name is there once");
    let found = devices
        .iter()
        .find(|one| one["name"] == device)
        .unwrap_or_else(|| panic!("no {device} in {names:?}"));
    let (mut mounts, mut variables) = (Vec::new(), BTreeMap::new());
    for edits in [&specification["containerEdits"], &found["containerEdits"]] {
        only(edits, &["env", "mounts"]);
        for mount in edits["mounts"].as_array().into_iter().flatten() {
            only(mount, &["hostPath", "containerPath", "options"]);
            let path = |key: &str| {
                mount[key]
                    .as_str()
                    .filter(|path| path.starts_with('/'))
                    .expect("absolute")
                    .to_owned()
            };
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
    let folder = Folder::create();
    let socket = folder.join("run/x.sock");
    std::fs::create_dir(folder.join("run")).expect("a folder can be made");
    let text = |path: &Path| path.to_str().expect("a plain path").to_owned();
    let args = ["--driver", "cpu", "--socket", &text(&socket)];
    let server = Server::start_with(&args, &[("OUTBOARD_CPU_DEVICES", "2")]);
    let file = folder.join("cdi/outboard.json");
    let generate = ["cdi", "generate", "--server", server.address(), "--output", &text(&file)];
    said(&outboard(&generate));
    let specification: Value =
        serde_json::from_slice(&std::fs::read(&file).expect("it was written")).expect("JSON");
    assert_eq!(specification["kind"], "outboard.dev/gpu");
    let (mounts, variables) = checked(&specification, "1");
    let real = text(&socket.canonicalize().expect("the server listens"));
    assert_eq!(
        variables["OUTBOARD_SERVER"],
        format!("unix:{real}/1"),
        "this machine's loopback is not the container's"
    );
    // A container, as far as this machine lets one be made: other files at the paths of the
    // specification, and no network.
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
    let can_isolate = isolated("mount -t tmpfs none /opt").status.success();
    let output = if can_isolate {
        let output = isolated(&script);
        assert!(said(&output).contains("over unix"), "the socket is used: {output:?}");
        output
    } else {
        // Not in a namespace, then with the mounts' own paths: variables and socket are tried all
        // the same.
        let outside = |value: &String| {
            mounts.iter().fold(value.clone(), |value, (host, inside)| value.replace(inside, host))
        };
        let variables = variables.iter().map(|(name, value)| (name, outside(value)));
        Command::new(&program).envs(variables).output().expect("the program starts")
    };
    assert!(said(&output).starts_with("vector_add: "), "{output:?}");
    if !can_isolate {
        skip!("no namespaces can be made here: only the specification's variables");
    }
}

/// Files by which programs recognise the server and show who they are come into the container; what
/// is secret stays out of the specification.
#[test]
fn a_container_shows_the_token_that_it_was_given() {
    let folder = Folder::create();
    let [socket, state, token, authorities] =
        ["x.sock", "state", "token", "ca.pem"].map(|name| folder.path(name));
    let made = outboard(&["token", "create", "--json", "--owner", "alice", "--state", &state]);
    let made: Value = serde_json::from_str(&said(&made)).expect("JSON");
    let secret = made["token"].as_str().expect("a token");
    std::fs::write(&token, secret).expect("it can be written");
    std::fs::copy(Path::new(&state).join("server.crt"), &authorities).expect("it can be copied");
    let server =
        Server::start_with(&["--driver", "cpu", "--socket", &socket, "--state", &state], &[]);
    let generate = |flags: &[&str], env: &[(&str, &str)]| {
        let local = format!("unix:{socket}");
        let mut command = command();
        command.args(["cdi", "generate", "--server", &local]).args(flags).envs(env.iter().copied());
        command.output().expect("outboard starts")
    };
    let output = generate(&["--token-file", &token, "--tls-ca", &authorities], &[]);
    let specification: Value = serde_json::from_str(&said(&output)).expect("JSON");
    assert!(!specification.to_string().contains(secret));
    let (mounts, mut variables) = checked(&specification, "all");
    for name in ["OUTBOARD_TOKEN_FILE", "OUTBOARD_TLS_CA"] {
        let inside = variables[name].clone();
        let (host, _) = mounts
            .iter()
            .find(|(_, path)| *path == inside)
            .expect("what a variable names is mounted");
        variables.insert(name.to_owned(), host.clone());
    }
    // With the mounts' own paths, as no container can be made everywhere.
    said(&command().arg("devices").envs(&variables).output().expect("outboard starts"));
    let log = || server.log();
    let seen = outboard_e2e::within(std::time::Duration::from_secs(20), || {
        log().contains("\"owner\":\"alice\"")
    });
    assert!(seen, "{}", log());

    // A token of whoever generates it is not given away without a word.
    let output = generate(
        &[],
        &[("OUTBOARD_TOKEN_FILE", token.as_str()), ("OUTBOARD_TLS_FINGERPRINT", "sha256:0")],
    );
    let note = String::from_utf8_lossy(&output.stderr).into_owned();
    let specification: Value = serde_json::from_str(&said(&output)).expect("JSON");
    let (mounts, variables) = checked(&specification, "all");
    assert!(note.contains("no token") && !variables.contains_key("OUTBOARD_TOKEN_FILE"), "{note}");
    assert!(
        variables["OUTBOARD_TLS_FINGERPRINT"] == "sha256:0"
            && mounts.iter().all(|(host, _)| *host != token)
    );
}

/// The manifest for clusters says to the server what it understands, and what it is told elsewhere
/// fits.
#[test]
fn a_cluster_is_told_what_the_server_understands() {
    let page = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes").join(name);
        std::fs::read_to_string(path).expect("the manifest is there")
    };
    let (server, client) = (page("server.yaml"), page("client.yaml"));
    let settings = server
        .split("outboard.toml: |\n")
        .nth(1)
        .and_then(|rest| rest.split("\n---").next())
        .expect("settings");
    let settings: String = settings
        .lines()
        .map(|line| line.strip_prefix("    ").unwrap_or(line).to_owned() + "\n")
        .collect();
    let folder = Folder::create();
    let file = folder.join("outboard.toml");
    std::fs::write(&file, &settings).expect("it can be written");
    said(&outboard(&["config", "check", file.to_str().expect("a plain path")]));
    let number = |text: &str, before: &str| {
        let rest = text.split(before).nth(1).unwrap_or_else(|| panic!("no {before}"));
        let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().expect("a number")
    };
    assert!(number(&settings, "drain =") < number(&server, "terminationGracePeriodSeconds:"));
    assert_eq!(
        number(&settings, "listen = \"0.0.0.0:"),
        number(&server, "name: sessions\n              containerPort:")
    );
    assert_eq!(
        number(&settings, "metrics = \"0.0.0.0:"),
        number(&server, "name: metrics\n              containerPort:")
    );
    let release = said(&outboard(&["--version"])).trim().trim_start_matches("outboard ").to_owned();
    assert!(server.contains(&format!("image: outboard-server:{release}\n")), "{release}");
    assert!(client.contains(&format!("image: outboard-client:{release}\n")), "{release}");
    // Each variable of the client's is one that there is.
    let shown = said(&outboard(&["config", "show"])) + &said(&outboard(&["config", "reference"]));
    for line in client.lines().filter_map(|line| line.split("name: OUTBOARD_").nth(1)) {
        let name = format!("OUTBOARD_{}", line.split([',', '}']).next().unwrap_or_default().trim());
        assert!(shown.contains(&name), "{name}");
    }
}

#[test]
fn a_specification_that_cannot_work_is_refused() {
    let output = outboard(&["cdi", "generate", "--server", "127.0.0.1:1"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && text.contains("OB0107") && text.contains("container"),
        "{text}"
    );
    // A server elsewhere need not be up.
    let output = outboard(&[
        "cdi",
        "generate",
        "--server",
        "no-such-host.invalid",
        "--kind",
        "example.org/gpu",
    ]);
    let specification: Value = serde_json::from_str(&said(&output)).expect("JSON");
    let (_, variables) = checked(&specification, "all");
    assert_eq!(variables["OUTBOARD_SERVER"], "no-such-host.invalid:9470");
    assert!(variables["LD_LIBRARY_PATH"].starts_with("/opt/outboard/lib/outboard/client:"));
    let output = outboard(&["cdi", "generate", "--kind", "gpu", "--server", "gpu1"]);
    assert_eq!(output.status.code(), Some(2));
}

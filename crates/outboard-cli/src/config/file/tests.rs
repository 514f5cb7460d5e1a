use clap::CommandFactory;

use super::*;
use crate::Cli;
use outboard_supervisor::warm::Bounds;

fn command() -> Command {
    keys::with_environment(Cli::command())
}

fn check(text: &str) -> Result<Settings, Mistakes> {
    File { path: "test.toml".into(), text: text.to_owned() }.check(&command())
}

/// Each mistake as `line:column: message; help`.
fn mistakes(text: &str) -> Vec<String> {
    let mistakes = check(text).err().expect("it has mistakes");
    let told = mistakes.all().iter().map(|mistake| {
        let before = &text[..mistake.place.map_or(0, |place| place.offset())];
        let (line, column) = (
            before.matches('\n').count() + 1,
            before.rsplit('\n').next().unwrap_or_default().len() + 1,
        );
        format!(
            "{line}:{column}: {}; {}",
            mistake.message,
            mistake.help.as_deref().unwrap_or_default()
        )
    });
    told.collect()
}

#[test]
fn settings_are_read() {
    let settings = check("# a comment\n[serve]\nlisten = \"0.0.0.0\"\nwarm = 0x2\nwarm-devices = [0, 2]\n\n[client]\nserver = \"gpu1/1\"\n").unwrap();
    let told: Vec<_> =
        settings.serve.iter().map(|one| (one.name.as_str(), one.text(), one.line)).collect();
    assert_eq!(
        told,
        [
            ("listen", "0.0.0.0".to_owned(), 3),
            ("warm", "2".to_owned(), 4),
            ("warm-devices", "0,2".to_owned(), 5)
        ]
    );
    assert_eq!(settings.client[0].text(), "gpu1/1");
    assert!(check("").is_ok_and(|settings| settings.serve.is_empty()));
}

#[test]
fn every_mistake_is_told_with_its_place() {
    let told = mistakes(
        "[serve]\nlisen = \"::\"\nwarm = 99\nimage_cache = \"/x\"\nlisten = 2020-01-01\n[client]\ntransport = \"udp\"\nserver = \"a,a\"\n",
    );
    let wanted = [
        ("2:1: there is no setting `lisen`", "did you mean `listen`?"),
        ("3:8: invalid value '99' for '--warm <N|N-N|auto>'", "0 to 64"),
        ("4:1: there is no setting `image_cache`", "did you mean `image-cache`?"),
        ("5:10: a date is no value", ""),
        ("7:13: `udp` cannot be used for `transport`", "shm, tcp"),
        ("8:10: `a,a` cannot be used for `server`", "twice"),
    ];
    assert_eq!(told.len(), wanted.len(), "{told:#?}");
    for (told, (start, part)) in told.iter().zip(wanted) {
        assert!(told.starts_with(start) && told.contains(part), "{told} is not {start} {part}");
    }
}

#[test]
fn what_is_not_toml_is_told_with_its_place() {
    assert!(
        mistakes("[serve]\nlisten = \n")[0].starts_with("2:10: "),
        "{:?}",
        mistakes("[serve]\nlisten = \n")
    );
    let twice = mistakes("[serve]\nwarm = 1\nwarm = 2\n");
    assert!(twice[0].starts_with("3:1: duplicate key"), "{twice:?}");
}

#[test]
fn keys_outside_of_tables_are_told_where_they_belong() {
    assert!(mistakes("listen = 1")[0].contains("it belongs under [serve]"));
    assert!(mistakes("server = 1")[0].contains("it belongs under [client]"));
    assert!(mistakes("[server]")[0].contains("it belongs under [client]"));
    assert!(mistakes("[serv]")[0].contains("did you mean `serve`?"));
    assert!(mistakes("serve = 1")[0].contains("write [serve]"));
    assert!(mistakes("[quite-else]")[0].contains("under [serve], [client]"));
}

#[test]
fn settings_that_need_or_exclude_others_are_told() {
    let told = mistakes("[serve]\ntls-cert = \"a.pem\"\n");
    assert!(
        told.len() == 1 && told[0].starts_with("1:2: ") && told[0].contains("--tls-key"),
        "{told:?}"
    );
    let told = mistakes("[serve]\nallow-anonymous = true\nrequire-authentication = true\n");
    assert!(told[0].contains("cannot be used with"), "{told:?}");
    assert!(check("[serve]\nallow-anonymous = false\nrequire-authentication = true\n").is_ok());
}

#[test]
fn the_users_file_is_where_the_convention_says() {
    let file = |set: &[(&str, &str)]| {
        user_file(|name| set.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).into()))
    };
    assert_eq!(
        file(&[("HOME", "/users/a")]),
        Some("/users/a/.config/outboard/outboard.toml".into())
    );
    let both = [("HOME", "/users/a"), ("XDG_CONFIG_HOME", "/c")];
    assert_eq!(file(&both), Some("/c/outboard/outboard.toml".into()));
    assert_eq!(file(&[("HOME", "a")]), None);
}

/// What takes the place of a default is taken by every flag, and flags and variables go before it.
#[test]
fn flags_go_before_the_file_and_switches_can_be_turned_off() {
    let settings = check("[serve]\nlisten = \"a:1\"\nwarm = 3\nwarm-devices = [1, 0]\n").unwrap();
    let command = settings.as_defaults(command());
    let matches = command.try_get_matches_from(["outboard", "serve", "--warm", "4"]).unwrap();
    let serve = matches.subcommand_matches("serve").unwrap();
    assert_eq!(serve.get_one::<String>("listen").map(String::as_str), Some("a:1"));
    assert_eq!(serve.get_one::<Bounds>("warm"), Some(&Bounds::fixed(4)));
    for flag in keys::flags(&self::command()) {
        assert!(flag.get_env().is_some() && flag.get_help().is_some(), "{flag}");
        assert!(!matches!(flag.get_action(), clap::ArgAction::SetTrue), "{flag}");
    }
}

/// Settings of the client library are variables: whoever adds one says here whether it is a
/// setting.
#[test]
fn every_variable_of_the_client_is_a_key_or_is_none_on_purpose() {
    // A token itself is a secret: it has a file of its own. Servers have tables of their own.
    // `outboard run` says by itself that a loss is to be said, and whose a login is.
    const NONE: [&str; 6] = [
        "OUTBOARD_LOGIN_OF",
        "OUTBOARD_SAY_LOST",
        "OUTBOARD_SERVERS",
        "OUTBOARD_STATS_FILE",
        "OUTBOARD_TEST",
        "OUTBOARD_TOKEN",
    ];
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders =
        vec![crates.join("outboard-client/src"), crates.join("outboard-front/src/profile")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            for (at, _) in text.match_indices("\"OUTBOARD_") {
                let name: &str = text[at + 1..].split('"').next().unwrap_or_default();
                if !name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_') {
                    continue;
                }
                seen += 1;
                let known =
                    client::KEYS.iter().any(|key| key.variable == name) || NONE.contains(&name);
                assert!(
                    known,
                    "{}: {name} is no key of [client]: see config/client.rs",
                    path.display()
                );
            }
        }
    }
    assert!(seen > 3, "variables are found");
}

#[test]
fn servers_have_settings_of_their_own() {
    let settings = check(
        "[servers.gpu1]\ntransport = \"tcp\"\n[servers.\"gpu[2-3]:80\"]\ntls = \"off\"\ntoken-file = \"/t\"\n",
    )
    .unwrap();
    let told: Vec<_> = settings
        .servers
        .iter()
        .flat_map(|own| own.settings.iter().map(|one| (own.name.as_str(), one.text())))
        .collect();
    let wanted = [("gpu1", "tcp"), ("gpu[2-3]:80", "off"), ("gpu[2-3]:80", "/t")];
    assert_eq!(told, wanted.map(|(name, text)| (name, text.to_owned())));
    for (text, mistake) in [
        ("[servers.gpu1]\nserver = \"gpu2\"\n", "2:1: there is no setting `server`"),
        ("[servers.gpu1]\nlog = \"1\"\n", "2:1: there is no setting `log`"),
        ("[servers.gpu1]\ntls = \"no\"\n", "2:7: `no` cannot be used for `tls`"),
        ("[servers.\"gpu1/0\"]\n", "1:10: `gpu1/0` names no server; write HOST[:PORT]"),
        ("[servers]\ngpu1 = 1\n", "2:1: `gpu1` is a table; write [servers.\"gpu1\"]"),
        ("servers = 1\n", "1:1: `servers` is a table"),
    ] {
        let all = mistakes(text);
        assert!(all.len() == 1 && all[0].starts_with(mistake), "{text}: {all:?}");
    }
}

use super::super::rustfmt;
use super::Control;

const EXAMPLE: &str = include_str!("example.toml");
const LOCK: &str = include_str!("example.lock");

#[test]
fn a_description_becomes_the_code_and_the_lock_that_are_checked_in() {
    let control = Control::parse(EXAMPLE, "").unwrap();
    assert_eq!(control.lock(), LOCK);
    let code = rustfmt(&control.code()).unwrap();
    assert!(
        code == include_str!("example.rs"),
        "the code differs from example.rs; now it is\n{code}"
    );
    let again = Control::parse(EXAMPLE, LOCK).unwrap();
    assert_eq!(again.lock(), LOCK);
}

/// The sentence about the example in which `from` is `to`.
fn refused(from: &str, to: &str) -> String {
    assert!(EXAMPLE.contains(from), "the example has no {from:?}");
    match Control::parse(&EXAMPLE.replacen(from, to, 1), LOCK) {
        Ok(_) => panic!("{to:?} was taken for good"),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn what_is_wrong_with_a_description_is_said_in_a_sentence() {
    let cases = [
        (
            "tag = 3",
            "tag = 7",
            "api/control.toml: to_worker.go and to_worker.say both have the tag 7",
        ),
        ("tag = 3", "tag = 300", "u8"),
        ("again: option<u32>", "again: option<u33>", "to_worker.say: there is no type \"u33\""),
        (
            "places: list<Place>",
            "places: list<Placed>",
            "to_supervisor.seen: there is no type \"Placed\"",
        ),
        (
            "places: list<Place>",
            "places list<Place>",
            "a field is \"name: type\" or \"name: type | what it is\"",
        ),
        ("again: option<u32>", "what: option<u32>", "there are two fields \"what\""),
        (
            "key: option<Key>",
            "key: option<milliseconds>",
            "struct Plan: \"milliseconds\" stands by itself",
        ),
        (
            "digest: [u8; 32]",
            "digest: [u8; many]",
            "struct Plan: \"many\" is no number of elements",
        ),
        ("number: u128", "number: u128\", \"plan: list<Plan>", "holds itself"),
        ("Place = ", "Key = ", "Key is described under [struct] and named under [uses]"),
        (
            "holds = \"list<Key>\"",
            "holds = \"Key\"\nfields = [\"a: u8\"]",
            "either `fields` or one value that it `holds`",
        ),
        ("[to_worker.go]", "[to_worker.unknown]", "what another release says is called unknown"),
        ("before_session = true", "during_session = true", "during_session"),
    ];
    for (from, to, sentence) in cases {
        let said = refused(from, to);
        assert!(said.contains(sentence), "{to:?} gives {said:?}");
    }
}

#[test]
fn what_other_releases_say_never_changes() {
    let cases = [
        (
            "tag = 7",
            "tag = 8",
            "to_worker.go is \"7 ()\" in api/control.lock and \"8 ()\" in api/control.toml",
        ),
        ("what: str", "what: bytes", "to_worker.say is \"3 (str option<u32>)\""),
        ("\"what: str\", ", "", "to_worker.say"),
        // By way of a structure.
        ("number: u128", "number: u64", "to_supervisor.keys"),
        (
            "[to_worker.go]",
            "[to_worker.walk]",
            "to_worker.go is in api/control.lock but not in api/control.toml",
        ),
        ("doc = \"Go.\"", "doc = \"Go.\"\nbefore_session = true", "to_worker.go is \"7 ()\""),
        ("board = { tag = 1", "board = { tag = 2", "kept.board"),
        ("\"at: u64\", ", "", "struct.Shown"),
        // Of one release with its supervisor, but still at its own number.
        ("tag = 0", "tag = 9", "to_worker.begin is \"0\""),
    ];
    for (from, to, sentence) in cases {
        let said = refused(from, to);
        assert!(said.contains(sentence), "{to:?} gives {said:?}");
    }
}

#[test]
fn names_and_what_is_said_before_a_session_may_change() {
    for (from, to) in [
        ("what: str", "words: str"),
        ("payload: bytes", "payload: bytes\", \"more: u8"),
        ("before_session = true", ""),
        ("[to_worker.go]", "[to_worker.more]\ntag = 9\ndoc = \"More.\"\n\n[to_worker.go]"),
    ] {
        assert!(EXAMPLE.contains(from), "the example has no {from:?}");
        if let Err(error) = Control::parse(&EXAMPLE.replacen(from, to, 1), LOCK) {
            panic!("{to:?} is refused: {error:#}");
        }
    }
}

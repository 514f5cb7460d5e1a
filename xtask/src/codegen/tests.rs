//! The generators, on a small made-up description: what they write is checked in beside it.
//! `OUTBOARD_WRITE_EXPECTED=1 cargo test -p xtask` writes it anew.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::backend::Backends;
use super::forms::Forms;
use super::wire::Messages;
use super::{front, model, rustfmt};

fn example() -> PathBuf {
    crate::util::root().join("xtask/src/codegen/example")
}

/// Compares what a generator has written with what is checked in.
fn expect(name: &str, written: &str) {
    let path = example().join("expected").join(name);
    if std::env::var_os("OUTBOARD_WRITE_EXPECTED").is_some() {
        std::fs::write(&path, written)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let expected = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = written.lines().zip(expected.lines()).enumerate();
    if let Some((number, (written, expected))) = lines.into_iter().find(|(_, (a, b))| a != b) {
        panic!("{name}:{}: there should be\n  {expected}\nbut there is\n  {written}", number + 1);
    }
    assert_eq!(
        written.lines().count(),
        expected.lines().count(),
        "{name} has as many lines as expected"
    );
}

fn rust(name: &str, written: &str) {
    expect(name, &rustfmt(written).unwrap_or_else(|error| panic!("{name}: {error}")));
}

#[test]
fn messages_are_written_as_expected() {
    let messages = Messages::read(&example()).expect("the example is good");
    rust("messages.rs", &messages.codec());
    rust("dispatch.rs", &messages.dispatch());
    expect("wire.lock", &messages.lock());
    expect("wire-forms.lock", &messages.forms());
}

#[test]
fn back_ends_are_written_as_expected() {
    let messages = Messages::read(&example()).expect("the example is good");
    let backends = Backends::read(&example(), &messages).expect("the example is good");
    rust("backend.rs", &backends.traits());
    rust("forward.rs", &backends.forward());
    rust("several.rs", &backends.several());
    rust("recorder.rs", &backends.recorder());
}

#[test]
fn entry_points_are_written_as_expected() {
    let api = model::Api::read(&example()).expect("the example is good");
    rust("symbols.rs", &front::symbol_names(&api));
    rust("exports.rs", &front::exports(&api));
    rust("table.rs", &front::driver_table(&api));
}

const TRAITS: &str = r#"
types = { backend = ["ContextId", "ObjectId", "StreamId"] }
[[traits]]
name = "Lamps"
docs = "Lamps."
families = ["lamp"]
"#;

/// What is said of a description of a message with a method.
fn said(message: &str) -> String {
    said_of(message, TRAITS)
}

fn said_of(message: &str, traits: &str) -> String {
    let files = BTreeMap::from([("lamp".to_owned(), message.to_owned())]);
    let outcome = Messages::from_parts(&files, "", Forms::default())
        .and_then(|messages| Backends::from_parts(traits, &messages));
    format!("{:#}", outcome.err().expect("the description is bad"))
}

#[test]
fn bad_messages_are_refused_in_sentences() {
    assert_eq!(
        said("[lamp]\nclass = \"call\"\nchains = \"keeps\"\nfields = [\"lamp\"]"),
        "the message lamp: a field is \"name: type\", not \"lamp\""
    );
    assert_eq!(
        said("[lamp]\nclass = \"posted\"\nchains = \"keeps\"\nreply = [\"watts: u32\"]"),
        "lamp is posted but has a reply"
    );
    let twice = ["lamp", "room"].map(|family| {
        (family.to_owned(), "[lamp]\nclass = \"call\"\nchains = \"keeps\"".to_owned())
    });
    let error = Messages::from_parts(&BTreeMap::from(twice), "", Forms::default())
        .err()
        .expect("the description is bad");
    assert_eq!(
        error.to_string(),
        "lamp is described in api/wire/lamp.toml and in api/wire/room.toml"
    );
    let error = Messages::from_parts(&BTreeMap::new(), "lamp = 1", Forms::default())
        .err()
        .expect("the description is bad");
    assert_eq!(
        error.to_string(),
        "lamp has a number in api/wire.lock but is not in api/wire/; a message that is not sent any more stays there"
    );
}

#[test]
fn what_is_said_of_chains_is_checked() {
    const FIELDS: &str = "fields = [\"stream: stream\", \"lamp: object\", \"watts: u32\"]\n";
    for (chains, sentence) in [
        ("", "`chains` says what it does to chains of launches, mostly `chains = \"keeps\"`"),
        (
            "chains = \"ends_with_function\"",
            "its `chains` needs a function, but it has no field `function`",
        ),
        (
            "chains = \"bars_stream\"\nchains_of = \"river\"",
            "its `chains` needs a stream, but it has no field `river`",
        ),
        (
            "chains = \"ends_in_stream\"\nchains_of = \"watts\"",
            "its field `watts: u32` does not name a stream",
        ),
        (
            "chains = \"ends\"\nchains_of = \"lamp\"",
            "`chains_of` has no effect: nothing is asked of a field",
        ),
        (
            "chains = \"keeps\"\nchains_if = \"watts > 0\"",
            "`chains_if` has no effect: no chain ends",
        ),
        (
            "chains = \"ends\"\nchains_if = \"0 < watts\"",
            "`chains_if` begins with a field, not \"0\"",
        ),
    ] {
        let lamp = format!("[lamp]\nclass = \"posted\"\n{FIELDS}{chains}");
        assert_eq!(said(&lamp), format!("the message lamp: {sentence}"));
    }
    let unknown = said("[lamp]\nclass = \"call\"\nchains = \"rusts\"");
    assert!(unknown.contains("unknown variant `rusts`"), "{unknown}");
}

#[test]
fn bad_methods_are_refused_in_sentences() {
    const SWITCH: &str = "[switch]\nclass = \"posted\"\nchains = \"keeps\"\nfields = [\"lamp: object\", \"on: bool\"]\n[switch.method]\ndocs = \"\"\n";
    for (more, sentence) in [
        (
            "arguments = [\"lamp: Lamp\", \"on: bool\"]\nfill = { lamp = \"lamp.0\" }",
            "nobody knows the type Lamp: `types` in api/backend.toml says which module a type is in",
        ),
        (
            "arguments = [\"lamp: ObjectId\"]",
            "nothing fills the field `on: bool`: it has no argument of that name, and `fill` does not say",
        ),
        (
            "arguments = [\"lamp: ObjectId\", \"on: u32\"]",
            "its argument `on: u32` does not become the field `on: bool` by itself: say how in `fill`",
        ),
        (
            "arguments = [\"lamp: ObjectId\", \"on: bool\", \"volume: u32\"]",
            "its argument `volume` fills no field of the message",
        ),
        ("arguments = [\"lamp\"]", "an argument is \"name: type\", not \"lamp\""),
        ("fill = { off = \"!on\" }", "`fill` names off, which is not a field of the message"),
        ("spread = \"shade\"", "`spread` names shade, which is not an argument"),
        ("send = \"call\"", "it cannot be sent by `call`: the message is posted"),
        (
            "send = \"post_to\"",
            "it says which stream the work goes to, so it must have one argument of the type StreamId",
        ),
        (
            "send = \"post_using\"",
            "`using` goes with `send = \"post_using\"`, and must say which memory it is",
        ),
        (
            "send = \"own\"\nfill = { on = \"true\" }",
            "the client has code of its own for it (`send = \"own\"`): `fill`, `spread`, `read` and `using` have no effect",
        ),
        ("class = \"call\"", "its class is the message's, and is not said again"),
        (
            "context = false",
            "no argument tells which of several servers it is for: it takes a context, a `home`, or says in `servers` what several do",
        ),
        (
            "servers = \"first\"",
            "an argument tells which server it is for, so `servers` has no effect",
        ),
        (
            "home = true\ncontext = true",
            "`home` stands in place of a context, so `context` has no effect",
        ),
        (
            "context = false\nservers = \"each\"\nreturns = \"u32\"",
            "it cannot fail, so several servers cannot say that one is not there",
        ),
        ("local = true", "it has a message, so it is for servers, too, and not `local`"),
        ("result = \"u64\"\nreturns = \"u64\"", "it has both `result` and `returns`"),
        ("read = \"reply.watts\"", "it is posted, so there is no reply to read a result from"),
    ] {
        let expected = format!("the method switch of the message switch: {sentence}");
        assert_eq!(said(&format!("{SWITCH}{more}")), expected);
    }
    assert_eq!(
        said(
            "[ask]\nclass = \"call\"\nchains = \"keeps\"\nreply = [\"watts: u32\"]\n[ask.method]\ndocs = \"\"\nresult = \"u64\""
        ),
        "the method ask of the message ask: it has a result of its own (`result`): say in `read` how the reply becomes that"
    );
}

#[test]
fn bad_traits_are_refused_in_sentences() {
    const PING: &str = "[ping]\nclass = \"call\"\nchains = \"keeps\"\n[ping.method]\ndocs = \"\"\n";
    assert_eq!(
        said_of(PING, &TRAITS.replace("\"lamp\"", "\"lamp\", \"room\"")),
        "the trait Lamps takes the methods of api/wire/room.toml, which is not there"
    );
    assert_eq!(
        said_of(PING, &TRAITS.replace("\"lamp\"", "")),
        "ping has a method, but no trait of api/backend.toml takes those of api/wire/lamp.toml"
    );
    assert_eq!(
        said_of(&format!("{PING}trait = \"Rooms\""), TRAITS),
        "the method of ping is of the trait Rooms, which api/backend.toml does not have"
    );
    let with = |method: &str| format!("{TRAITS}[[traits.methods]]\ndocs = \"\"\n{method}");
    assert_eq!(said_of(PING, &with("name = \"ping\"")), "ping is a method of both Lamps and Lamps");
    assert_eq!(said_of(PING, &with("")), "a method of api/backend.toml has no name");
    assert_eq!(
        said_of(PING, &with("name = \"light\"\nsend = \"call\"")),
        "the method light says how it is sent, but has no message: it belongs beside one in api/wire/"
    );
    assert_eq!(
        said_of(PING, &with("name = \"light\"\nlocal = true")),
        "the method light is not for servers (`local`), so it needs a `default`"
    );
    let local = "name = \"light\"\nlocal = true\ndefault = \"CUDA_ERROR_NOT_SUPPORTED\"";
    assert_eq!(
        said_of(PING, &with(local)),
        "the method light: it is not for servers (`local`), so nothing tells which of them it is for"
    );
}

//! A connection that only asks NVML's questions can do nothing else, whatever its client sends: it
//! is outside of the queue, of limits, and of exclusive devices.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use outboard_e2e::{Driver, Recording, Server};
use outboard_session::client::{Event, Incoming};
use outboard_wire::codec::decode_all;
use outboard_wire::frame::{CommandHeader, flags};
use outboard_wire::handshake::{
    ANSWER_LIMIT, Answer, HELLO_LIMIT, Hello, Preamble, Purpose, VERSION,
};
use outboard_wire::{Writer, messages, notice};

/// Programs that send commands of many kinds.
const PROGRAMS: [&str; 7] = [
    "vector_add",
    "streams_events",
    "symbols",
    "virtual_memory",
    "memory_pools",
    "graph_explicit",
    "arrays",
];
/// The number of the question that is asked last; who answers it has done with all before it.
const LAST: &str = "context_open";
const LIMIT: Duration = Duration::from_secs(30);

/// A command as it was sent.
#[derive(Clone)]
struct Sent {
    header: CommandHeader,
    payload: Vec<u8>,
}

/// What became of a command.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It was done, with this answer.
    Done(Vec<u8>),
    /// It was refused.
    Refused,
    /// The session was ended.
    Ended,
}

impl Sent {
    fn encode(&self, seq: u32, writer: &mut Writer) {
        CommandHeader { seq, ..self.header }.encode(writer);
        writer.fixed(&self.payload);
    }

    fn waits(&self) -> bool {
        self.header.flags & flags::WANTS_REPLY != 0
    }
}

/// The hello of a recording, and its commands.
fn taken_apart(recording: &Recording) -> (Hello, Vec<Sent>) {
    let (hello, mut rest) = recording.bytes.split_at(recording.hello);
    let (head, body) = hello.split_first_chunk::<{ Preamble::SIZE }>().expect("a preamble");
    let hello = Hello::decode(&Preamble::decode(head, HELLO_LIMIT).expect("ours"), body, VERSION)
        .expect("a hello");
    let mut commands = Vec::new();
    while let Some((head, after)) = rest.split_first_chunk::<{ CommandHeader::SIZE }>() {
        let header = CommandHeader::decode(head).expect("a header");
        let (payload, after) = after.split_at(header.len as usize);
        commands.push(Sent { header, payload: payload.to_vec() });
        rest = after;
    }
    // Those of the link itself carry no command.
    commands.retain(|sent| messages::name(sent.header.op).is_some());
    (hello, commands)
}

/// A connection for that purpose, welcomed.
fn connect(server: &Server, hello: &Hello, purpose: Purpose) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).expect("the server listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    stream.write_all(&Hello { purpose, ..hello.clone() }.encode()).expect("the server reads");
    let mut head = [0; Preamble::SIZE];
    stream.read_exact(&mut head).expect("an answer");
    let preamble = Preamble::decode(&head, ANSWER_LIMIT).expect("a preamble");
    let mut body = vec![0; preamble.len as usize];
    stream.read_exact(&mut body).expect("an answer");
    let answer = Answer::decode(&preamble, &body, VERSION).expect("an answer");
    assert!(matches!(answer, Answer::Welcome(_)), "{answer:?}");
    stream
}

/// Sends commands, the last of which waits for a reply, and returns the fate of each.
fn send(mut stream: TcpStream, commands: &[Sent]) -> Vec<Fate> {
    let mut writer = Writer::new();
    for (index, sent) in commands.iter().enumerate() {
        sent.encode(index as u32 + 1, &mut writer);
    }
    // The server may end the session before it has read everything.
    let _ = stream.write_all(&writer.into_vec());
    let mut fates: Vec<Fate> = commands.iter().map(|_| Fate::Ended).collect();
    let (mut incoming, mut failures) = (Incoming::new(), 0);
    loop {
        let mut piece = [0; 4096];
        let Ok(count @ 1..) = stream.read(&mut piece) else { return fates };
        incoming.buffer().push(&piece[..count]);
        while let Some(event) = incoming.next_event().expect("frames of a worker") {
            match event {
                Event::Reply { answers, status, payload } => {
                    fates[answers as usize - 1] =
                        if status == 0 { Fate::Done(payload.to_vec()) } else { Fate::Refused };
                    if answers as usize == commands.len() {
                        // Those that nobody waits for have only said something if they failed.
                        for (fate, _) in
                            fates.iter_mut().zip(commands).filter(|(_, sent)| !sent.waits())
                        {
                            *fate =
                                if failures > 0 { Fate::Refused } else { Fate::Done(Vec::new()) };
                        }
                        return fates;
                    }
                }
                Event::Notice { code: notice::FAILURE, .. } => failures += 1,
                Event::Notice { .. } => {}
            }
        }
    }
}

#[test]
fn who_only_asks_can_do_nothing_else() {
    let driver = Driver::chosen().name();
    let server = Server::start_with(&["--driver", driver], &[]);
    let recordings = PROGRAMS.map(|program| taken_apart(&Recording::of(&server, program)));
    let last = recordings.iter().flat_map(|(_, sent)| sent);
    let last = last
        .clone()
        .find(|sent| messages::name(sent.header.op) == Some(LAST))
        .expect("a program asks")
        .clone();
    let hello = &recordings[0].0;

    // Said again by a session, the commands do what they did.
    let mut whole = recordings[0].1.clone();
    whole.truncate(60);
    whole.push(last.clone());
    let session = connect(&server, hello, Purpose::Session { devices: vec![] });
    let fates = send(session, &whole);
    assert!(fates.iter().filter(|fate| matches!(fate, Fate::Done(_))).count() > 5, "{fates:?}");

    // Each kind of command, by itself, to a worker that has never had a driver and to one that has
    // waited with it.
    let kinds: BTreeMap<u16, &Sent> = recordings
        .iter()
        .flat_map(|(_, sent)| sent)
        .rev()
        .map(|sent| (sent.header.op, sent))
        .collect();
    assert!(kinds.len() > 30, "{} kinds of commands", kinds.len());
    let warm = Server::start_with(&["--driver", driver, "--warm", "1"], &[]);
    for (op, sent) in kinds {
        let name = messages::name(op).unwrap_or_default();
        for server in [&server, &warm] {
            let stream = connect(server, hello, Purpose::Management { devices: vec![] });
            let fates = send(stream, &[sent.clone(), last.clone()]);
            let harmless = match (&fates[0], name) {
                (Fate::Refused | Fate::Ended, _) => true,
                // The answer itself says that it failed, or that the image has to be sent first;
                // and bytes of images are only kept until one is loaded, which gives the error of
                // those that are refused.
                (Fate::Done(answer), "graph_instantiate") => {
                    decode_all::<messages::GraphInstantiateReply>(answer)
                        .expect("its answer")
                        .status
                        != 0
                }
                (Fate::Done(answer), "module_load_named") => {
                    !decode_all::<messages::ModuleLoadNamedReply>(answer)
                        .expect("its answer")
                        .missing
                        .is_empty()
                }
                (Fate::Done(_), name) => ["image_data", "image_complete"].contains(&name),
            };
            assert!(harmless && fates[1] == Fate::Refused, "{name}: {fates:?}");
        }
    }
}

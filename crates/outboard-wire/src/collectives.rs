//! Calls of NCCL, as they travel. The client's calls between `ncclGroupStart` and `ncclGroupEnd`
//! that are for one server are one list, which the worker makes as a group.

use crate::codec::{Decode, DecodeError, Encode, Reader, Writer};
use crate::names::{ContextId, DevicePtr, ObjectId, StreamId};
use crate::{choice, record};

/// Bytes of an `ncclUniqueId`.
pub const ID_BYTES: usize = 128;
/// What makes the ranks of a communicator find each other.
pub type UniqueId = [u8; ID_BYTES];

/// Where an id that Outboard gave says which release of NCCL made it. NCCL itself fills the
/// beginning of the id and leaves the rest zero.
const MARK: &[u8; 8] = b"outboard";
const MARK_AT: usize = ID_BYTES - 12;

/// Writes into an id which release made it.
pub fn mark(id: &mut UniqueId, release: u32) {
    if id[MARK_AT..].iter().all(|byte| *byte == 0) {
        id[MARK_AT..ID_BYTES - 4].copy_from_slice(MARK);
        id[ID_BYTES - 4..].copy_from_slice(&release.to_le_bytes());
    }
}

/// The release that made an id, if the id says so.
pub fn release_of(id: &UniqueId) -> Option<u32> {
    let (mark, release) = id[MARK_AT..].split_at(MARK.len());
    (mark == MARK).then(|| release.try_into().map(u32::from_le_bytes).ok())?
}

/// NCCL of one release does not work with another one: a sentence, if a server has another release
/// than the one that made an id.
pub fn differing_releases(own: u32, ids: &[UniqueId]) -> Option<String> {
    let other = ids.iter().filter_map(release_of).find(|release| *release != own)?;
    let (own, other) = (release_name(own), release_name(other));
    Some(format!(
        "this server has NCCL {own}, and the server that made the unique id has {other}: \
         all servers of a communicator need the same release"
    ))
}

/// A release as people write it: 23203 is 2.32.3.
pub fn release_name(release: u32) -> String {
    // Up to 2.8, a release had one digit for its second number.
    let (major, rest) = if release >= 10_000 {
        (release / 10_000, release % 10_000)
    } else {
        (release / 1000, release % 1000)
    };
    format!("{major}.{}.{}", rest / 100, rest % 100)
}

/// Where an `ncclConfig_t` has numbers (`int`), in bytes from its beginning. NCCL appends fields
/// and never moves one.
pub const CONFIG_NUMBERS: [u16; 21] =
    [16, 20, 24, 28, 40, 44, 56, 60, 64, 68, 72, 76, 80, 84, 88, 92, 96, 100, 104, 108, 112];
/// Where it has `netName` and `commName`, which are pointers to strings.
pub const CONFIG_NAMES: [u16; 2] = [32, 48];
/// What a number is that a program leaves undefined, `NCCL_CONFIG_UNDEF_INT`.
pub const UNDEFINED: i32 = i32::MIN;

/// What a program sets of a communicator; what it leaves undefined is not here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommConfig {
    /// Numbers, each with its place in `ncclConfig_t` in bytes.
    pub numbers: Vec<(u16, i32)>,
    /// `netName`; empty if it is not set.
    pub net: String,
    /// `commName`; empty if it is not set.
    pub name: String,
}

record! { CommConfig { numbers, net, name } }

/// What a collective does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Function {
    /// `ncclAllReduce`.
    AllReduce = 0,
    /// `ncclBroadcast`, and `ncclBcast`.
    Broadcast = 1,
    /// `ncclReduce`.
    Reduce = 2,
    /// `ncclAllGather`.
    AllGather = 3,
    /// `ncclReduceScatter`.
    ReduceScatter = 4,
    /// `ncclAlltoAll`.
    AlltoAll = 5,
    /// `ncclGather`.
    Gather = 6,
    /// `ncclScatter`.
    Scatter = 7,
    /// `ncclSend`.
    Send = 8,
    /// `ncclRecv`.
    Recv = 9,
}

impl Function {
    /// All of them, by their numbers.
    pub const ALL: [Function; 10] = [
        Function::AllReduce,
        Function::Broadcast,
        Function::Reduce,
        Function::AllGather,
        Function::ReduceScatter,
        Function::AlltoAll,
        Function::Gather,
        Function::Scatter,
        Function::Send,
        Function::Recv,
    ];

    /// NCCL's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Function::AllReduce => "ncclAllReduce",
            Function::Broadcast => "ncclBroadcast",
            Function::Reduce => "ncclReduce",
            Function::AllGather => "ncclAllGather",
            Function::ReduceScatter => "ncclReduceScatter",
            Function::AlltoAll => "ncclAlltoAll",
            Function::Gather => "ncclGather",
            Function::Scatter => "ncclScatter",
            Function::Send => "ncclSend",
            Function::Recv => "ncclRecv",
        }
    }

    /// Whether it combines values, by an operation that is given.
    pub fn reduces(self) -> bool {
        matches!(self, Function::AllReduce | Function::Reduce | Function::ReduceScatter)
    }

    /// Whether one rank is named, a root or a peer.
    pub fn names_rank(self) -> bool {
        use Function::*;
        matches!(self, Broadcast | Reduce | Gather | Scatter | Send | Recv)
    }
}

impl Encode for Function {
    fn encode(&self, writer: &mut Writer) {
        writer.u8(*self as u8);
    }
}

impl<'a> Decode<'a> for Function {
    fn decode(reader: &mut Reader<'a>) -> Result<Function, DecodeError> {
        let value = reader.u8()?;
        let found = Function::ALL.get(usize::from(value)).copied();
        found.ok_or(DecodeError::Invalid { what: "collective", value: value.into() })
    }
}

/// A collective, or one side of a transfer between two ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collective {
    /// The communicator.
    pub comm: ObjectId,
    /// What is done.
    pub function: Function,
    /// Where a rank's own elements are. 0: the function has no such side.
    pub send: DevicePtr,
    /// Where the result goes. 0: the function has no such side.
    pub recv: DevicePtr,
    /// As the function counts its elements.
    pub count: u64,
    /// `ncclDataType_t`.
    pub datatype: u32,
    /// `ncclRedOp_t`, or one that the communicator's server has made.
    pub op: u32,
    /// The root or the peer.
    pub rank: i32,
    /// The stream, of the communicator's context.
    pub stream: StreamId,
}

record! { Collective { comm, function, send, recv, count, datatype, op, rank, stream } }

impl Collective {
    /// Bytes that this rank, one of `ranks`, reads and writes, if an element has `element` bytes.
    /// `None` if there are too many to count.
    pub fn bytes(&self, own: i32, ranks: i32, element: u64) -> Option<(u64, u64)> {
        let one = self.count.checked_mul(element)?;
        let all = || one.checked_mul(u64::try_from(ranks).ok()?);
        let is_root = self.rank == own;
        Some(match self.function {
            Function::AllReduce => (one, one),
            Function::Broadcast => (if is_root { one } else { 0 }, one),
            Function::Reduce => (one, if is_root { one } else { 0 }),
            Function::AllGather => (one, all()?),
            Function::ReduceScatter => (all()?, one),
            Function::AlltoAll => (all()?, all()?),
            Function::Gather => (one, if is_root { all()? } else { 0 }),
            Function::Scatter => (if is_root { all()? } else { 0 }, one),
            Function::Send => (one, 0),
            Function::Recv => (0, one),
        })
    }
}

/// Bytes of an element of an `ncclDataType_t`, if there is such a type.
pub fn element_bytes(datatype: u32) -> Option<u64> {
    Some(match datatype {
        0 | 1 | 10 | 11 => 1,
        6 | 9 => 2,
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        _ => return None,
    })
}

/// A call of NCCL that is about a communicator. The client names communicators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommCall {
    /// `ncclCommInitRankConfig`, or with several ids `ncclCommInitRankScalable`. Gives
    /// [`membership`].
    Init {
        /// The new communicator.
        comm: ObjectId,
        /// The context of its device.
        ctx: ContextId,
        /// How many ranks there are.
        ranks: i32,
        /// Which of them it is.
        rank: i32,
        /// By which the ranks find each other.
        ids: Vec<UniqueId>,
        /// What the program sets.
        config: CommConfig,
    },
    /// `ncclCommSplit`. Gives [`membership`].
    Split {
        /// The communicator that is split.
        comm: ObjectId,
        /// The new one; none if this rank is of no part.
        made: ObjectId,
        /// The part, or `NCCL_SPLIT_NOCOLOR`.
        color: i32,
        /// The order of ranks.
        key: i32,
        /// What the program sets; none: as the communicator that is split.
        config: Option<CommConfig>,
    },
    /// `ncclCommShrink`. Gives [`membership`].
    Shrink {
        /// The communicator some of whose ranks are left out.
        comm: ObjectId,
        /// The new one.
        made: ObjectId,
        /// The ranks that are left out.
        excluded: Vec<i32>,
        /// What the program sets; none: as the other communicator.
        config: Option<CommConfig>,
        /// `NCCL_SHRINK_ABORT`, or 0.
        flags: i32,
    },
    /// `ncclCommFinalize`.
    Finalize {
        /// The communicator.
        comm: ObjectId,
    },
    /// `ncclCommDestroy`.
    Destroy {
        /// The communicator.
        comm: ObjectId,
    },
    /// `ncclCommAbort`.
    Abort {
        /// The communicator.
        comm: ObjectId,
    },
    /// A collective.
    Collective(Collective),
    /// `ncclRedOpCreatePreMulSum`. Gives the operation's number.
    Reduction {
        /// The communicator.
        comm: ObjectId,
        /// `ncclDataType_t` of the scalar.
        datatype: u32,
        /// The scalar, if it is immediate.
        immediate: Vec<u8>,
        /// Where it is, if it is not.
        address: DevicePtr,
    },
    /// `ncclRedOpDestroy`.
    ForgetReduction {
        /// The communicator.
        comm: ObjectId,
        /// The operation's number.
        op: u32,
    },
    /// `ncclCommRegister`. Gives a handle.
    Register {
        /// The communicator.
        comm: ObjectId,
        /// The buffer.
        address: DevicePtr,
        /// Its size.
        bytes: u64,
    },
    /// `ncclCommDeregister`.
    Deregister {
        /// The communicator.
        comm: ObjectId,
        /// What `Register` gave.
        handle: u64,
    },
    /// `ncclCommWindowRegister`. Gives a handle.
    RegisterWindow {
        /// The communicator.
        comm: ObjectId,
        /// The buffer.
        address: DevicePtr,
        /// Its size.
        bytes: u64,
        /// `NCCL_WIN_*`.
        flags: i32,
    },
    /// `ncclCommWindowDeregister`.
    DeregisterWindow {
        /// The communicator.
        comm: ObjectId,
        /// What `RegisterWindow` gave.
        window: u64,
    },
}

choice! { CommCall, "call of NCCL" {
    0 = Init { comm, ctx, ranks, rank, ids, config };
    1 = Split { comm, made, color, key, config };
    2 = Shrink { comm, made, excluded, config, flags };
    3 = Finalize { comm };
    4 = Destroy { comm };
    5 = Abort { comm };
    6 = Collective(call);
    7 = Reduction { comm, datatype, immediate, address };
    8 = ForgetReduction { comm, op };
    9 = Register { comm, address, bytes };
    10 = Deregister { comm, handle };
    11 = RegisterWindow { comm, address, bytes, flags };
    12 = DeregisterWindow { comm, window };
}}

impl CommCall {
    /// The communicator that it is about: the one that there is before.
    pub fn comm(&self) -> ObjectId {
        use CommCall::*;
        match self {
            Collective(call) => call.comm,
            Init { comm, .. }
            | Split { comm, .. }
            | Shrink { comm, .. }
            | Finalize { comm }
            | Destroy { comm }
            | Abort { comm }
            | Reduction { comm, .. }
            | ForgetReduction { comm, .. }
            | Register { comm, .. }
            | Deregister { comm, .. }
            | RegisterWindow { comm, .. }
            | DeregisterWindow { comm, .. } => *comm,
        }
    }
}

/// What a call gives that makes a communicator: its rank and how many there are.
pub fn membership(rank: i32, ranks: i32) -> u64 {
    u64::from(rank as u32) << 32 | u64::from(ranks as u32)
}

/// Rank and ranks of a [`membership`].
pub fn members(value: u64) -> (i32, i32) {
    ((value >> 32) as i32, value as i32)
}

/// A communicator has failed, unasked: a notice's contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommFailure {
    /// The communicator.
    pub comm: ObjectId,
    /// `ncclResult_t`.
    pub result: u32,
    /// What NCCL or the worker says of it.
    pub sentence: String,
}

record! { CommFailure { comm, result, sentence } }

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::decode_all;

    #[test]
    fn an_id_says_which_release_made_it_if_there_is_room() {
        let mut id = [0; ID_BYTES];
        id[..36].fill(7);
        assert_eq!(release_of(&id), None);
        mark(&mut id, 22809);
        assert_eq!(release_of(&id), Some(22809));
        assert!(id[..36].iter().all(|byte| *byte == 7));
        let mut full = [7; ID_BYTES];
        mark(&mut full, 22809);
        assert_eq!((full, release_of(&full)), ([7; ID_BYTES], None));
    }

    #[test]
    fn releases_have_names() {
        assert_eq!([22809, 23203, 2708].map(release_name), ["2.28.9", "2.32.3", "2.7.8"]);
    }

    #[test]
    fn each_rank_touches_what_its_function_says() {
        let call = |function, rank| Collective {
            comm: ObjectId(1),
            function,
            send: DevicePtr(0),
            recv: DevicePtr(0),
            count: 10,
            datatype: 7,
            op: 0,
            rank,
            stream: StreamId::LEGACY,
        };
        let bytes = |function, root| call(function, root).bytes(1, 3, 4).unwrap();
        assert_eq!(bytes(Function::AllReduce, 0), (40, 40));
        assert_eq!(
            (bytes(Function::Broadcast, 0), bytes(Function::Broadcast, 1)),
            ((0, 40), (40, 40))
        );
        assert_eq!((bytes(Function::Reduce, 0), bytes(Function::Reduce, 1)), ((40, 0), (40, 40)));
        assert_eq!(bytes(Function::AllGather, 0), (40, 120));
        assert_eq!(bytes(Function::ReduceScatter, 0), (120, 40));
        assert_eq!(bytes(Function::AlltoAll, 0), (120, 120));
        assert_eq!((bytes(Function::Gather, 0), bytes(Function::Gather, 1)), ((40, 0), (40, 120)));
        assert_eq!(
            (bytes(Function::Scatter, 0), bytes(Function::Scatter, 1)),
            ((0, 40), (120, 40))
        );
        assert_eq!((bytes(Function::Send, 0), bytes(Function::Recv, 0)), ((40, 0), (0, 40)));
        let huge = Collective { count: u64::MAX / 4, ..call(Function::AllGather, 0) };
        assert_eq!(huge.bytes(0, 8, 4), None);
    }

    #[test]
    fn calls_arrive_as_they_were_sent() {
        let config =
            CommConfig { numbers: vec![(16, 0)], net: String::new(), name: "a".to_owned() };
        let comm = ObjectId(5);
        let calls = vec![
            CommCall::Init {
                comm,
                ctx: ContextId(1),
                ranks: 2,
                rank: -1,
                ids: vec![[3; ID_BYTES]],
                config: config.clone(),
            },
            CommCall::Split { comm, made: ObjectId(6), color: -1, key: 0, config: Some(config) },
            CommCall::Shrink { comm, made: ObjectId(7), excluded: vec![1], config: None, flags: 1 },
            CommCall::Reduction {
                comm,
                datatype: 7,
                immediate: vec![0, 0, 128, 63],
                address: DevicePtr(0),
            },
            CommCall::Collective(Collective {
                comm,
                function: Function::Recv,
                send: DevicePtr(0),
                recv: DevicePtr(256),
                count: 1,
                datatype: 0,
                op: 0,
                rank: 1,
                stream: StreamId(9),
            }),
            CommCall::Abort { comm },
        ];
        let mut writer = Writer::new();
        writer.put(&calls);
        let bytes = writer.into_vec();
        assert_eq!(decode_all::<Vec<CommCall>>(&bytes).unwrap(), calls);
        assert_eq!(members(membership(-1, 2)), (-1, 2));
    }
}

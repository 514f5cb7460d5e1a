//! Suspending a process that uses the software device: `cuCheckpointProcess*`, called by another
//! process.
//!
//! A process that may be suspended listens at an abstract Unix socket
//! (`OUTBOARD_CPU_CHECKPOINT=1`). Its memory moves to a file without a name. Calls are not held up
//! meanwhile, as NVIDIA's driver does: whoever has it suspended sees to it that none is made.

use std::ffi::c_int;
use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use outboard_abi::{CUprocessState, CUresult};
use outboard_front::backend::CheckpointStep;
use outboard_simt::{Engine, Saved};

const VARIABLE: &str = "OUTBOARD_CPU_CHECKPOINT";
/// How long the other process may take over a question.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(120);

const LOCK: u8 = b'L';
const CHECKPOINT: u8 = b'C';
const RESTORE: u8 = b'R';
const UNLOCK: u8 = b'U';
const STATE: u8 = b'S';

fn address(process: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("outboard-cpu-checkpoint-{process}"))
}

/// What the process has to be suspended.
struct Process {
    /// Whether nothing is queued on any device.
    is_quiet: fn() -> bool,
    engines: Vec<Arc<Engine>>,
}

/// Makes this process one that may be suspended, if the environment says so. `is_quiet` says
/// whether nothing is queued on any device.
pub(crate) fn listen(is_quiet: fn() -> bool, engines: Vec<Arc<Engine>>) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if std::env::var_os(VARIABLE).is_none_or(|value| value != "1") {
            return;
        }
        let listener =
            address(std::process::id()).and_then(|address| UnixListener::bind_addr(&address));
        if let Ok(listener) = listener {
            let serve = move || serve(&Process { is_quiet, engines }, &listener);
            let _ = outboard_threads::start("outboard-checkpoint", serve);
        }
    });
}

/// What the process is at.
enum CheckpointState {
    Running,
    Locked,
    Checkpointed(Vec<Saved>),
}

fn serve(process: &Process, listener: &UnixListener) {
    let mut state = CheckpointState::Running;
    for mut stream in listener.incoming().flatten() {
        let own = rustix::process::geteuid();
        let peer = rustix::net::sockopt::socket_peercred(&stream);
        if !peer.is_ok_and(|peer| peer.uid == own || peer.uid.is_root()) {
            continue;
        }
        let mut question = [0; 5];
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        let _ = stream.set_write_timeout(Some(Duration::from_secs(5)));
        if stream.read_exact(&mut question).is_ok() {
            let limit = u32::from_le_bytes([question[1], question[2], question[3], question[4]]);
            let (status, value) =
                state.change(process, question[0], Duration::from_millis(limit.into()));
            let mut answer = [0; 8];
            answer[..4].copy_from_slice(&status.0.to_le_bytes());
            answer[4..].copy_from_slice(&value.to_le_bytes());
            let _ = stream.write_all(&answer);
        }
    }
}

impl CheckpointState {
    fn change(&mut self, process: &Process, action: u8, limit: Duration) -> (CUresult, u32) {
        let outcome = match (action, &*self) {
            (STATE, _) => Ok(()),
            (LOCK, CheckpointState::Running) => {
                process.finish_work(limit).map(|()| *self = CheckpointState::Locked)
            }
            (CHECKPOINT, CheckpointState::Locked) => {
                process.save().map(|saved| *self = CheckpointState::Checkpointed(saved))
            }
            (RESTORE, CheckpointState::Checkpointed(saved)) => {
                process.restore(saved).map(|()| *self = CheckpointState::Locked)
            }
            (UNLOCK, CheckpointState::Locked) => {
                *self = CheckpointState::Running;
                Ok(())
            }
            _ => Err(CUresult::CUDA_ERROR_ILLEGAL_STATE),
        };
        let state = match self {
            CheckpointState::Running => CUprocessState::CU_PROCESS_STATE_RUNNING,
            CheckpointState::Locked => CUprocessState::CU_PROCESS_STATE_LOCKED,
            CheckpointState::Checkpointed(_) => CUprocessState::CU_PROCESS_STATE_CHECKPOINTED,
        };
        (outcome.err().unwrap_or(CUresult::CUDA_SUCCESS), state.0)
    }
}

impl Process {
    /// Waits for all that is queued.
    fn finish_work(&self, limit: Duration) -> Result<(), CUresult> {
        // Without a limit, as long as the one who asks waits.
        let limit = if limit.is_zero() { QUESTION_TIMEOUT } else { limit.min(QUESTION_TIMEOUT) };
        let until = Instant::now() + limit;
        while !(self.is_quiet)() {
            if Instant::now() >= until {
                return Err(CUresult::CUDA_ERROR_NOT_READY);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn save(&self) -> Result<Vec<Saved>, CUresult> {
        // SAFETY: nothing is queued, and whoever had the process locked sees to it that nothing
        // will be.
        let saved = self
            .engines
            .iter()
            .map(|engine| unsafe { engine.memory().save() })
            .collect::<io::Result<_>>();
        saved.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    fn restore(&self, saved: &[Saved]) -> Result<(), CUresult> {
        // SAFETY: saved from these, and nothing has been queued since.
        let restored = self
            .engines
            .iter()
            .zip(saved)
            .try_for_each(|(engine, saved)| unsafe { engine.memory().restore(saved) });
        restored.map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }
}

/// Asks another process.
fn ask(process: c_int, action: u8, limit: u32) -> Result<u32, CUresult> {
    let unknown = |_| CUresult::CUDA_ERROR_INVALID_VALUE;
    let process = u32::try_from(process).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let mut stream =
        address(process).and_then(|address| UnixStream::connect_addr(&address)).map_err(unknown)?;
    // Anybody may listen at a name.
    let listener = rustix::net::sockopt::socket_peercred(&stream)
        .map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
    if listener.pid.as_raw_pid().unsigned_abs() != process {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let _ = stream.set_read_timeout(Some(QUESTION_TIMEOUT));
    let _ = stream.set_write_timeout(Some(QUESTION_TIMEOUT));
    let mut question = [action; 5];
    question[1..].copy_from_slice(&limit.to_le_bytes());
    let mut answer = [0; 8];
    let lost = |_| CUresult::CUDA_ERROR_OPERATING_SYSTEM;
    stream.write_all(&question).and_then(|()| stream.read_exact(&mut answer)).map_err(lost)?;
    let word = |at: usize| {
        u32::from_le_bytes([answer[at], answer[at + 1], answer[at + 2], answer[at + 3]])
    };
    match CUresult(word(0)) {
        CUresult::CUDA_SUCCESS => Ok(word(4)),
        error => Err(error),
    }
}

/// Asks another process to take a step.
pub(crate) fn ask_step(process: c_int, step: CheckpointStep, limit: u32) -> Result<u32, CUresult> {
    let action = match step {
        CheckpointStep::Lock => LOCK,
        CheckpointStep::Checkpoint => CHECKPOINT,
        CheckpointStep::Restore => RESTORE,
        CheckpointStep::Unlock => UNLOCK,
        CheckpointStep::State => STATE,
    };
    ask(process, action, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever came first has the name; only the process itself is asked.
    #[test]
    fn somebody_else_at_a_process_name_is_not_asked() {
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let impostor = UnixListener::bind_addr(&address(other.id()).unwrap()).unwrap();
        let outcome = ask(other.id().cast_signed(), STATE, 0);
        assert_eq!(outcome, Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        let (mut stream, _) = impostor.accept().unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        assert!(heard.is_empty(), "it has not heard the question");
        other.kill().unwrap();
        other.wait().unwrap();
        assert_eq!(ask(-1, STATE, 0), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    }
}

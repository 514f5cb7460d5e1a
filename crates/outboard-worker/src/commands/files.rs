//! Files that the server shares with the client.

use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_control::meter::{self, Direction, Way};
use outboard_wire::messages::*;
use outboard_wire::{DevicePtr, ObjectId};

use crate::answer::{Answer, Outcome};
use crate::files::errno_of;
use crate::generated::dispatch::FilesCommands;
use crate::staging::{FileCopy, Moved};
use crate::worker::Worker;

impl FilesCommands for Worker {
    fn file_open(&mut self, m: FileOpen, answer: Answer<FileOpen>) {
        let Some(registry) = self.client.replier().map(|replier| replier.registry().clone()) else {
            return answer.error(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        };
        if let Err(error) = self.files.begin(m.file) {
            return answer.error(error);
        }
        let files = self.files.clone();
        self.helpers.run_in_turn(move || {
            let opening = files.open(&registry, m);
            answer.ok(&FileOpenReply { opening });
        });
    }

    fn file_give(&mut self, m: FileGive, answer: Answer<FileGive>) {
        // Whatever else becomes of the command, the file does not stay for the next one.
        let given = self.client.replier().and_then(|replier| replier.take_file(m.number).ok());
        let Some(given) = given else { return answer.error(CUresult::CUDA_ERROR_NOT_SUPPORTED) };
        if let Err(error) = self.files.begin(m.file) {
            return answer.error(error);
        }
        let files = self.files.clone();
        self.helpers.run_in_turn(move || {
            let taken = files.take(m.file, given, m.reads, m.writes);
            answer.result(taken.map(|()| FileGiveReply {}));
        });
    }

    fn file_prove(&mut self, m: FileProve<'_>, answer: Answer<FileProve<'static>>) {
        let registry = self.client.replier().map(|replier| replier.registry().clone());
        let (Some(registry), Ok(proof)) = (registry, m.proof.try_into()) else {
            return answer.error(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        let (files, file) = (self.files.clone(), m.file);
        self.helpers.run_in_turn(move || {
            let failure = files.prove(&registry, file, proof).err().unwrap_or_default();
            answer.ok(&FileProveReply { failure: &failure });
        });
    }

    fn file_read(&mut self, m: FileRead, answer: Answer<FileRead>) {
        let copy = self.file_copy(m.file, m.offset, m.bytes, m.dst, true);
        self.move_file(copy, answer, |(moved, errno)| FileReadReply { moved, errno });
    }

    fn file_write(&mut self, m: FileWrite, answer: Answer<FileWrite>) {
        let copy = self.file_copy(m.file, m.offset, m.bytes, m.src, false);
        self.move_file(copy, answer, |(moved, errno)| FileWriteReply { moved, errno });
    }

    fn file_sync(&mut self, m: FileSync, answer: Answer<FileSync>) {
        let file = match self.files.used(m.file) {
            Ok(file) => file,
            Err(error) => return answer.error(error),
        };
        self.helpers.run_in_turn(move || {
            let errno = file.descriptor().sync_all().err().map_or(0, |error| errno_of(&error));
            answer.ok(&FileSyncReply { errno });
        });
    }

    fn file_close(&mut self, m: FileClose) -> Outcome {
        let closed = self.files.close(m.file)?;
        // A file system may make the last one to close a file wait.
        self.helpers.run_in_turn(move || drop(closed));
        Ok(())
    }
}

impl Worker {
    /// Makes a copy between a file and device memory, and answers when it is done. Nothing is moved
    /// if the file may not be used so.
    fn move_file<M: Call + 'static>(
        &mut self,
        copy: Result<FileCopy, CUresult>,
        answer: Answer<M>,
        reply: impl FnOnce(Moved) -> M::Reply<'static> + Send + 'static,
    ) {
        let copy = match copy {
            Ok(copy) => copy,
            Err(error) => return answer.error(error),
        };
        let context = copy.context;
        let direction = if copy.to_device { Direction::In } else { Direction::Out };
        self.on_helper(
            context,
            answer,
            |_| copy.run(),
            move |answer, outcome| {
                answer.result(outcome.map(|moved| {
                    meter::page().moved(direction, Way::Files, moved.0);
                    reply(moved)
                }));
            },
        );
    }

    /// A copy between a file and memory of the command's context.
    fn file_copy(
        &mut self,
        file: ObjectId,
        offset: u64,
        bytes: u64,
        device: DevicePtr,
        to_device: bool,
    ) -> Result<FileCopy, CUresult> {
        let file = self.files.used(file)?;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= i64::MAX as u64);
        if bytes == 0 || !fits {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.memory.allocations.check(device, bytes)?;
        let context = self.enter()?;
        let (table, helpers) = (self.table, self.helpers.clone());
        let pool = Arc::clone(self.copy_site(core::ptr::null_mut())?.pool);
        let threads = self.copies.file_threads();
        Ok(FileCopy {
            table,
            context,
            pool,
            helpers,
            threads,
            file,
            offset,
            bytes,
            device,
            to_device,
        })
    }
}

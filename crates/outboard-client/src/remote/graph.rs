//! Graphs on the server.

use core::ffi::c_void;

use outboard_abi::CUresult;
use outboard_front::backend::{
    ContextId, HostCall, HostPtr, Instantiated, ObjectId, Result, StreamId, Updated,
};
use outboard_wire::graph::{GraphEdit, NodeParams, Place, Rows};
use outboard_wire::messages as msg;

use super::Remote;
use crate::pager::Tracked;

/// A host callback that does nothing: it only marks a point of its stream.
unsafe extern "C" fn nothing(_: *mut c_void) {}

/// From the first to behind the last byte of a box.
fn span(rows: Rows<HostPtr>, [width, height, depth]: [u64; 3]) -> u64 {
    let above = rows
        .height
        .saturating_mul(depth.saturating_sub(1))
        .saturating_add(height.saturating_sub(1));
    rows.pitch.saturating_mul(above).saturating_add(width)
}

impl Remote {
    /// Has what the program and the device both use be the device's in parameters of a node.
    fn on_the_device(&'static self, params: &mut NodeParams) -> Result<()> {
        match params {
            NodeParams::Kernel(kernel) => self.map_parameters(kernel.ctx, &kernel.params)?,
            NodeParams::Copy(copy) => {
                let [width, height, depth] = copy.extent;
                for place in [&mut copy.dst, &mut copy.src] {
                    if let Place::Host(rows) = *place
                        && (self.tracked_on_host(copy.ctx, rows.address, 1)? != Tracked::None
                            || self
                                .host
                                .is_shared(rows.address, span(rows, [width, height, depth])))
                    {
                        let Rows { address, pitch, height } = rows;
                        *place = Place::Device(Rows {
                            address: address.unified().device(),
                            pitch,
                            height,
                        });
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Parameters of a node of a graph as the worker may know them.
    fn graph_node(
        &'static self,
        graph: ObjectId,
        node: u64,
        mut params: NodeParams,
    ) -> Result<NodeParams> {
        self.on_the_device(&mut params)?;
        let session = self.session()?;
        session.graphs().set_node(graph, node, params, || session.expect_graphs())
    }
}

impl Remote {
    pub(super) fn graph_edit(
        &'static self,
        ctx: ContextId,
        graph: ObjectId,
        edits: Vec<GraphEdit>,
    ) -> Result<()> {
        let known = |edit| {
            Ok(match edit {
                GraphEdit::Add { node, dependencies, params } => GraphEdit::Add {
                    node,
                    dependencies,
                    params: self.graph_node(graph, node, params)?,
                },
                GraphEdit::Set { node, params } => {
                    GraphEdit::Set { node, params: self.graph_node(graph, node, params)? }
                }
                GraphEdit::Remove { node } => {
                    self.session()?.graphs().remove_node(graph, node);
                    edit
                }
                edit => edit,
            })
        };
        let edits = edits.into_iter().map(known).collect::<Result<_>>()?;
        self.post(ctx, &msg::GraphChange { graph, edits })
    }

    pub(super) fn graph_destroy(&self, ctx: ContextId, graph: ObjectId) -> Result<()> {
        let session = self.session()?;
        session.graphs().forget_graph(graph);
        session.post(ctx, &msg::GraphDestroy { graph })
    }

    pub(super) fn graph_instantiate(
        &self,
        ctx: ContextId,
        graph: ObjectId,
        exec: ObjectId,
        flags: u64,
        stream: StreamId,
    ) -> Result<Instantiated> {
        let message = msg::GraphInstantiate { graph, exec, flags, stream };
        let graphs = self.session()?.graphs();
        let uses = graphs.of_graph(graph);
        let made = self.call(ctx, &message, |reply| Instantiated {
            status: CUresult(reply.status),
            result: reply.result,
            node: reply.node,
            handle: reply.handle,
        })?;
        if made.status == CUresult::CUDA_SUCCESS {
            graphs.made(exec, graph, uses);
        }
        Ok(made)
    }

    pub(super) fn graph_exec_update(
        &self,
        ctx: ContextId,
        exec: ObjectId,
        graph: ObjectId,
    ) -> Result<Updated> {
        let graphs = self.session()?.graphs();
        let uses = graphs.of_graph(graph);
        let updated = self.call(ctx, &msg::GraphExecUpdate { exec, graph }, |reply| Updated {
            status: CUresult(reply.status),
            result: reply.result,
            node: reply.node,
            from: reply.from,
        })?;
        if updated.status == CUresult::CUDA_SUCCESS {
            graphs.made(exec, graph, uses);
        } else {
            graphs.perhaps_made(exec, uses);
        }
        Ok(updated)
    }

    pub(super) fn graph_exec_set(
        &'static self,
        ctx: ContextId,
        exec: ObjectId,
        node: u64,
        params: NodeParams,
    ) -> Result<()> {
        let (mut params, session) = (params, self.session()?);
        self.on_the_device(&mut params)?;
        let params =
            session.graphs().set_exec_node(exec, node, params, || session.expect_graphs())?;
        self.post(ctx, &msg::GraphExecSet { exec, node, params })
    }

    pub(super) fn graph_launch(
        &self,
        ctx: ContextId,
        exec: ObjectId,
        stream: StreamId,
    ) -> Result<()> {
        let session = self.session()?;
        if session.graphs().frees_memory(exec) && session.may_use_memory_later() {
            // The driver refuses work with memory once a launch that frees it is queued.
            self.stream_synchronize(ctx, stream)?;
        }
        let message = msg::GraphLaunch { exec, stream };
        // Known before it is posted: the worker may ask at once.
        let launch = session.graphs().launch(exec, ctx, stream);
        // Among its nodes may be records of events.
        let post = || {
            session.progress().record_unnamed(|| {
                let seq = session.post_counted(ctx, stream, &message)?;
                if let Some(launch) = &launch {
                    launch.is(seq);
                }
                Ok(seq)
            })
        };
        self.work(ctx, stream, post)?;
        let Some(launch) = launch else { return Ok(()) };
        // While it runs it may write the program's memory: copies from there must not be read
        // ahead, as behind any function of the program. SAFETY: it takes no notice of its argument.
        let after = unsafe { HostCall::plain(Some(nothing), core::ptr::null_mut()) }?;
        session.host_call(ctx, stream, after, Some(launch))
    }

    pub(super) fn graph_exec_destroy(&self, ctx: ContextId, exec: ObjectId) -> Result<()> {
        let session = self.session()?;
        session.graphs().forget_exec(exec);
        session.post(ctx, &msg::GraphExecDestroy { exec })
    }
}

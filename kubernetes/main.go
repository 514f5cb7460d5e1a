// Outboard-dra gives the devices of a pool to pods: `outboard-dra controller` once in a cluster,
// `outboard-dra node` on each node.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = "usage: outboard-dra controller|node [FLAGS]; --help after either lists the flags"

func main() {
	commands := map[string]func(context.Context, []string) error{
		"controller": runController,
		"node":       runNode,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := commands[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "outboard-dra: %v\n", err)
		os.Exit(1)
	}
}

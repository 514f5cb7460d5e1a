// Package clustertest starts a cluster for tests, as processes: etcd, the API server, the scheduler
// and the controller manager. There is no kubelet: tests play it.
package clustertest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// programs is the folder of the programs; without it the test is skipped.
func programs(t testing.TB) string {
	t.Helper()
	path := os.Getenv("OUTBOARD_CLUSTER")
	if path == "" {
		t.Skip("OUTBOARD_CLUSTER names no folder with kube-apiserver and the others: " +
			"`cargo xtask kubernetes` builds them")
	}
	return path
}

// Process is a program that runs until it is killed, or the test ends.
type Process struct {
	command *exec.Cmd
	once    sync.Once
	// Log is the file of what it says.
	Log string
}

// Run starts a program.
func Run(t testing.TB, folder string, arguments ...string) *Process {
	t.Helper()
	log, err := os.CreateTemp(folder, filepath.Base(arguments[0])+"-*.log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := exec.Command(arguments[0], arguments[1:]...)
	command.Dir, command.Stdout, command.Stderr = folder, log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	process := &Process{command: command, Log: log.Name()}
	t.Cleanup(func() {
		process.Kill()
		if t.Failed() {
			said, _ := os.ReadFile(process.Log)
			t.Logf("%s said, at last:\n%s", arguments[0], said[max(0, len(said)-3000):])
		}
	})
	return process
}

// Succeeds waits until it has ended well, and gives what it has said.
func (p *Process) Succeeds(t testing.TB) string {
	t.Helper()
	err := p.command.Wait()
	said, _ := os.ReadFile(p.Log)
	if err != nil {
		t.Fatalf("%v failed: %v\n%s", p.command.Args, err, said)
	}
	return string(said)
}

// Kill ends it with no time to do anything.
func (p *Process) Kill() {
	p.once.Do(func() {
		_ = p.command.Process.Kill()
		_ = p.command.Wait()
	})
}

// FreePort is a port at which nobody listens now.
func FreePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// Package pooltest starts real brokers and servers for tests.
package pooltest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"outboard.dev/dra/internal/broker"
)

// Patience is how long tests wait for what has to happen.
const Patience = 30 * time.Second

// Install is the folder of Outboard's installation; without one the test is skipped.
func Install(t testing.TB) string {
	return folder(t, "OUTBOARD_DIST", "dist", "cargo xtask stage")
}

// Programs is the folder of CUDA test programs; without one the test is skipped.
func Programs(t testing.TB) string {
	return folder(t, "OUTBOARD_PROGRAMS", "programs", "cargo xtask programs")
}

func folder(t testing.TB, variable, name, command string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		above, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for filepath.Base(above) != "kubernetes" {
			above = filepath.Dir(above)
		}
		path = filepath.Join(above, "..", "target", name)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not there: run `%s`, or name a folder by %s", path, command, variable)
	}
	return path
}

// Pool is a broker.
type Pool struct {
	URL         string
	Fingerprint string
	folder      string
	outboard    string
	broker      *exec.Cmd
	listen      string
}

// Start starts a broker.
func Start(t testing.TB) *Pool {
	t.Helper()
	pool := &Pool{
		folder: t.TempDir(), outboard: filepath.Join(Install(t), "bin/outboard"),
		listen: "127.0.0.1:0",
	}
	pool.Restart(t)
	t.Cleanup(pool.Kill)
	return pool
}

var brokering = regexp.MustCompile(`brokering address=(\S+).*fingerprint=(\S+)`)

// Restart starts the broker again, at the same address with what it has kept.
func (p *Pool) Restart(t testing.TB) {
	t.Helper()
	p.broker = p.command("broker", "--listen", p.listen, "--state", p.state())
	found := start(t, p.broker, brokering)
	p.listen, p.URL, p.Fingerprint = found[1], "https://"+found[1], found[2]
}

// Kill kills the broker.
func (p *Pool) Kill() {
	if p.broker != nil {
		_ = p.broker.Process.Kill()
		_ = p.broker.Wait()
		p.broker = nil
	}
}

func (p *Pool) state() string { return filepath.Join(p.folder, "broker") }

func (p *Pool) command(arguments ...string) *exec.Cmd {
	command := exec.Command(p.outboard, arguments...)
	// Not what the machine is set to.
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.folder, "OUTBOARD_CONFIG=none",
		"XDG_RUNTIME_DIR=" + p.folder, "NO_COLOR=1"}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command
}

// Token makes a token, and gives its file.
func (p *Pool) Token(t testing.TB, role, owner string) string {
	t.Helper()
	output, err := p.command("token", "create", "--json", "--broker", "--state", p.state(),
		"--role", role, "--owner", owner).Output()
	if err != nil {
		t.Fatalf("no token: %v", err)
	}
	var made struct{ Token string }
	if err := json.Unmarshal(output, &made); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(p.folder, "token-"+role+"-"+owner)
	if err := os.WriteFile(file, []byte(made.Token), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// Access is the broker for somebody with a token of that role.
func (p *Pool) Access(t testing.TB, role, owner string) broker.Access {
	return broker.Access{
		URL: p.URL, Fingerprint: p.Fingerprint, TokenFile: p.Token(t, role, owner),
	}
}

// Client is the same.
func (p *Pool) Client(t testing.TB, role, owner string) *broker.Client {
	t.Helper()
	client, err := broker.New(p.Access(t, role, owner))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Server is a server of a pool.
type Server struct {
	process *exec.Cmd
	once    sync.Once
}

var serving = regexp.MustCompile(`serving.* address=(\S+)`)

// Serve starts a server with so many devices of 1 GiB on the software device.
func (p *Pool) Serve(t testing.TB, name string, devices int, flags ...string) *Server {
	t.Helper()
	return p.ServeWith(t, nil, name, devices, flags...)
}

// ServeWith does the same with further variables.
func (p *Pool) ServeWith(
	t testing.TB, variables []string, name string, devices int, flags ...string,
) *Server {
	t.Helper()
	arguments := append([]string{"serve", "--driver", "cpu", "--listen", "127.0.0.1:0", "--tls", "on",
		"--socket", "none", "--state", filepath.Join(p.folder, "state-"+name), "--pool", p.URL,
		"--pool-fingerprint", p.Fingerprint, "--pool-token-file", p.Token(t, "server", "servers"),
		"--pool-name", name}, flags...)
	command := p.command(arguments...)
	command.Env = append(append(command.Env, variables...),
		fmt.Sprintf("OUTBOARD_CPU_DEVICES=%d", devices), "OUTBOARD_CPU_MEMORY=1G",
		"OUTBOARD_CPU_THREADS=4")
	start(t, command, serving)
	server := &Server{process: command}
	t.Cleanup(server.Kill)
	viewer := p.Client(t, "viewer", "tests")
	Within(t, "the server is in the pool", func() error {
		pool, err := viewer.Pool(t.Context())
		if err != nil {
			return err
		}
		for _, found := range pool.Servers {
			if found.Name == name && found.Condition == "ready" && len(found.Devices) == devices {
				return nil
			}
		}
		return fmt.Errorf("it is not there: %+v", pool.Servers)
	})
	return server
}

// Drain tells the server to go.
func (s *Server) Drain() { _ = s.process.Process.Signal(syscall.SIGTERM) }

// Kill ends it.
func (s *Server) Kill() {
	s.once.Do(func() {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
	})
}

// start starts a program and waits for a line of its log.
func start(t testing.TB, command *exec.Cmd, wanted *regexp.Regexp) []string {
	t.Helper()
	log, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	found := make(chan []string, 1)
	go func() {
		var said strings.Builder
		lines := bufio.NewScanner(log)
		for lines.Scan() {
			if match := wanted.FindStringSubmatch(lines.Text()); match != nil {
				found <- match
				_, _ = io.Copy(io.Discard, log)
				return
			}
			said.WriteString(lines.Text() + "\n")
		}
		found <- []string{said.String()}
	}()
	select {
	case match := <-found:
		if len(match) > 1 {
			return match
		}
		t.Fatalf("%s ended:\n%s", command.Args[1], match[0])
	case <-time.After(Patience):
		t.Fatalf("%s is not ready", command.Args[1])
	}
	return nil
}

// Within waits until there is no error any more.
func Within(t testing.TB, what string, try func() error) {
	t.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(100 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v: %v", what, Patience, err)
		}
	}
}

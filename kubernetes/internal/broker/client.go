package broker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// mostBytes bounds an answer: a pool of 8,192 devices has a few megabytes.
const mostBytes = 64 << 20

// patience is how long an answer may take.
const patience = 20 * time.Second

// patienceWithOneOfSeveral is the same where another broker may lead.
const patienceWithOneOfSeveral = 5 * time.Second

// Access says where the broker is, how it is recognised, and who asks.
type Access struct {
	// URL may be those of several brokers, with commas between them.
	URL         string
	Fingerprint string
	Authorities string
	TokenFile   string
}

// Client asks a broker, or whichever of several leads.
type Client struct {
	urls []string
	// at counts how often another one was turned to.
	at        atomic.Uint64
	tokenFile string
	http      *http.Client
}

// AwayError says that the broker gave no answer, or that it may give another one later.
type AwayError struct{ cause error }

func (e *AwayError) Error() string { return e.cause.Error() }

// Unwrap gives the cause.
func (e *AwayError) Unwrap() error { return e.cause }

// RefusedError is the broker's no, in its own words.
type RefusedError struct {
	Status   int
	Sentence string
}

func (e *RefusedError) Error() string { return e.Sentence }

// IsUnknown says whether the broker does not know what it was asked about.
func IsUnknown(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Status == http.StatusNotFound
}

// IsNotNow says whether the broker cannot give what it was asked for, and may be able to later.
func IsNotNow(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Status == http.StatusConflict
}

// IsFinal says whether the broker has said no to what it was asked for.
func IsFinal(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Status == http.StatusBadRequest || IsNotNow(err)
}

// New makes a client.
func New(access Access) (*Client, error) {
	var urls []string
	for _, text := range strings.Split(access.URL, ",") {
		where, err := url.Parse(strings.TrimSpace(text))
		if err != nil || where.Scheme != "https" || where.Host == "" {
			return nil, fmt.Errorf("the broker's address is %q; say it as https://HOST", text)
		}
		if where.Port() == "" {
			where.Host += ":9472"
		}
		urls = append(urls, strings.TrimSuffix(where.String(), "/"))
	}
	timeout := patience
	if len(urls) > 1 {
		timeout = patienceWithOneOfSeveral
	}
	settings, err := trust(access)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: settings, MaxIdleConnsPerHost: 4}
	return &Client{
		urls:      urls,
		tokenFile: access.TokenFile,
		http:      &http.Client{Transport: transport, Timeout: timeout},
	}, nil
}

func trust(access Access) (*tls.Config, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS13}
	switch {
	case access.Fingerprint != "":
		wanted := strings.ToLower(strings.ReplaceAll(access.Fingerprint, ":", ""))
		wanted = strings.TrimPrefix(wanted, "sha256")
		if bytes, err := hex.DecodeString(wanted); err != nil || len(bytes) != sha256.Size {
			return nil, errors.New("the broker's fingerprint is to be sha256: and 64 digits")
		}
		// The fingerprint says which certificate it is, whoever signed it.
		settings.InsecureSkipVerify = true
		settings.VerifyConnection = func(state tls.ConnectionState) error {
			shown := sha256.Sum256(state.PeerCertificates[0].Raw)
			if found := hex.EncodeToString(shown[:]); found != wanted {
				return fmt.Errorf("the broker's certificate has the fingerprint sha256:%s", found)
			}
			return nil
		}
	case access.Authorities != "":
		text, err := os.ReadFile(access.Authorities)
		if err != nil {
			return nil, err
		}
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("there is no certificate in %s", access.Authorities)
		}
	}
	return settings, nil
}

// Me asks whom the broker takes us for.
func (c *Client) Me(ctx context.Context) (*Me, error) {
	return ask[Me](ctx, c, http.MethodGet, "/v1/me", nil)
}

// The most pages of a pool: many times as many as the largest one has.
const mostPages = 4096

// Pool asks for all that may be seen, page after page.
func (c *Client) Pool(ctx context.Context) (*Pool, error) {
	pool, err := ask[Pool](ctx, c, http.MethodGet, "/v1/pool", nil)
	if err != nil {
		return nil, err
	}
	for range mostPages {
		if pool.Next == "" {
			return pool, nil
		}
		page, err := ask[Pool](ctx, c, http.MethodGet, "/v1/pool?after="+pool.Next, nil)
		if err != nil {
			return nil, err
		}
		pool.Servers = append(pool.Servers, page.Servers...)
		pool.Leases = append(pool.Leases, page.Leases...)
		pool.Next = page.Next
	}
	return nil, fmt.Errorf("the broker tells the pool in more than %d pages", mostPages)
}

// Ask asks for a lease; asked again for the same purpose, the broker says how that stands.
func (c *Client) Ask(ctx context.Context, what Ask) (*Standing, error) {
	return ask[Standing](ctx, c, http.MethodPost, "/v1/requests", what)
}

// Standing asks how what was asked for a purpose stands.
func (c *Client) Standing(ctx context.Context, purpose string) (*Standing, error) {
	return ask[Standing](ctx, c, http.MethodGet, "/v1/purposes/"+url.PathEscape(purpose), nil)
}

// Renew has a lease go on.
func (c *Client) Renew(ctx context.Context, number uint64) (*Grant, error) {
	return ask[Grant](ctx, c, http.MethodPost, fmt.Sprintf("/v1/leases/%d/renew", number), nil)
}

// End gives back what was granted for a purpose. It is no error if there is nothing.
func (c *Client) End(ctx context.Context, purpose string) error {
	path := "/v1/purposes/" + url.PathEscape(purpose)
	_, err := ask[struct{}](ctx, c, http.MethodDelete, path, nil)
	if IsUnknown(err) {
		return nil
	}
	return err
}

// ask asks one broker after the other, until one leads. What is asked for may be asked twice: a
// lease is asked for by its purpose.
func ask[T any](ctx context.Context, c *Client, method, path string, body any) (*T, error) {
	var found *T
	var err error
	for range c.urls {
		at := c.at.Load()
		found, err = askOne[T](ctx, c, c.urls[at%uint64(len(c.urls))], method, path, body)
		var away *AwayError
		if !errors.As(err, &away) {
			break
		}
		c.at.CompareAndSwap(at, at+1)
	}
	return found, err
}

func askOne[T any](
	ctx context.Context, c *Client, broker, method, path string, body any,
) (*T, error) {
	// It is read each time: an administrator may put another one there.
	token, err := os.ReadFile(c.tokenFile)
	if err != nil {
		return nil, fmt.Errorf("the broker's token cannot be read: %w", err)
	}
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, broker+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, &AwayError{fmt.Errorf("the broker does not answer: %w", err)}
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, mostBytes+1))
	if err != nil {
		return nil, &AwayError{fmt.Errorf("the broker's answer broke off: %w", err)}
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return nil, refusal(answer.StatusCode, text)
	}
	found := new(T)
	if len(text) > mostBytes {
		return nil, errors.New("the broker's answer is too long")
	}
	if err := json.Unmarshal(text, found); err != nil {
		return nil, fmt.Errorf("the broker's answer is not what this release reads: %w", err)
	}
	return found, nil
}

func refusal(status int, text []byte) error {
	var no struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(text, &no) != nil || no.Error == "" {
		no.Error = fmt.Sprintf("the broker answers with status %d", status)
	}
	refused := &RefusedError{Status: status, Sentence: no.Error}
	if status == http.StatusTooManyRequests || status >= http.StatusInternalServerError {
		return &AwayError{refused}
	}
	return refused
}

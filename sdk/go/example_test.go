package dsec_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	dsec "github.com/dsec-platform/dsec/sdk/go"
)

func Example() {
	ctx := context.Background()
	c, err := dsec.New(dsec.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s, err := c.Create(ctx, dsec.CreateOptions{Template: "python", Labels: map[string]string{"run": "7"}})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Stop(context.WithoutCancel(ctx), "done")
	if _, err := s.WriteFile(ctx, "main.py", strings.NewReader("print(6 * 7)"), dsec.WriteOptions{}); err != nil {
		log.Fatal(err)
	}
	r, err := s.Run(ctx, dsec.Command{Argv: []string{"python3", "main.py"}, Timeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s(exit %d)\n", dsec.Output(r.GetStdout()), r.GetExitCode())
}

// A failed call says whose fault it was.
func ExampleError() {
	var err error // of a call
	if e, ok := errors.AsType[*dsec.Error](err); ok && e.Class == dsec.ClassInfrastructure {
		fmt.Println("the platform failed; do not count it against the agent:", e)
	}
}

// Output is followed while the command runs, over lost connections too.
func ExampleSession_Start() {
	ctx := context.Background()
	c, err := dsec.New(dsec.Options{URL: "unix:///var/lib/dsec/dsec.sock"})
	if err != nil {
		log.Fatal(err)
	}
	s, err := c.Create(ctx, dsec.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	p, err := s.Start(ctx, dsec.Command{Script: "make -j4 test"})
	if err != nil {
		log.Fatal(err)
	}
	r, err := p.Wait(os.Stdout, os.Stderr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("exit", r.GetExitCode())
}

// A thousand sessions in one request, used as they come.
func ExampleClient_CreateN() {
	ctx := context.Background()
	c, err := dsec.New(dsec.Options{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.CreateN(ctx, 1000, dsec.CreateOptions{Job: "eval-7", IdempotencyKey: "eval-7/1"}, func(i int, r dsec.CreateResult) {
		if r.Err != nil {
			log.Print(i, r.Err)
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Stop(ctx, dsec.ByJob("eval-7"), "done"); err != nil {
		log.Fatal(err)
	}
}

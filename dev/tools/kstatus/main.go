// kstatus reads objects of Kubernetes, a line of JSON each, and writes what kstatus makes of them: a line each, status and message.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// Objects are smaller than what etcd takes.
const longestLine = 2 << 20

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kstatus:", err)
		os.Exit(1)
	}
}

func run() error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		object := &unstructured.Unstructured{}
		if err := json.Unmarshal(lines.Bytes(), object); err != nil {
			return err
		}
		found, err := status.Compute(object)
		if err != nil {
			return err
		}
		fmt.Printf("%s\t%q\n", found.Status, found.Message)
	}
	return lines.Err()
}

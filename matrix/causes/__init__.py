"""From a red cell to its cause: reproducer, bisection over releases, report for the tracker."""
